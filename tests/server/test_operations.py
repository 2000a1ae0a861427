"""Routes that tell about the server."""

import re

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.server_process import RunningServer


def test_health_ping_version_load(http: httpx.Client) -> None:
    assert http.get("/health").status_code == 200
    assert http.get("/health").content == b""
    assert http.get("/ping").status_code == 200
    assert http.post("/ping").status_code == 200
    assert {"version", "docs", "api"} <= set(http.get("/").json())
    assert list(http.get("/version").json()) == ["version"]
    assert http.get("/load").json() == {"server_load": 0}


def test_models(http: httpx.Client) -> None:
    listed = http.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [card["id"] for card in listed["data"]] == ["tiny", "alias"]
    card = listed["data"][1]
    assert (card["object"], card["root"], card["parent"]) == ("model", "tiny", None)
    assert card["max_model_len"] == 1024
    assert http.get("/v1/models/alias").json() == card
    missing = http.get("/v1/models/other/name")
    assert missing.status_code == 404
    assert missing.json()["error"]["message"] == (
        "The model `other/name` does not exist. This server has: tiny, alias."
    )


def test_tokenize_and_back(http: httpx.Client) -> None:
    text = "Grüße, 世界 🎉"
    tokens = http.post("/tokenize", json={"prompt": text}).json()
    assert tokens["count"] == len(tokens["tokens"]) == 1 + len(text.encode())
    assert tokens["tokens"][0] == 1  # BOS
    assert tokens["max_model_len"] == 1024
    assert tokens["token_strs"] is None
    plain = http.post("/tokenize", json={"prompt": text, "add_special_tokens": False}).json()
    assert plain["tokens"] == tokens["tokens"][1:]
    back = http.post("/detokenize", json={"tokens": plain["tokens"]}).json()
    assert back == {"prompt": text}


def test_tokenize_a_conversation(http: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "return_token_strs": True}
    tokens = http.post("/tokenize", json=body).json()
    assert "".join(tokens["token_strs"]) == "<bos><|turn|>user:hi\n<|turn|>assistant:"
    without = http.post("/tokenize", json={**body, "add_generation_prompt": False}).json()
    assert "".join(without["token_strs"]) == "<bos><|turn|>user:hi\n"


def test_tokenize_empty_text(http: httpx.Client) -> None:
    body = {"prompt": "", "add_special_tokens": False}
    assert http.post("/tokenize", json=body).json()["tokens"] == []
    assert http.post("/detokenize", json={"tokens": []}).json() == {"prompt": ""}


@pytest.mark.parametrize("tokens", ["abc", [260], [-1], [True], [1.5], None, 5])
def test_wrong_tokens(http: httpx.Client, tokens: object) -> None:
    response = http.post("/detokenize", json={"tokens": tokens})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "tokens"


def metric_values(http: httpx.Client) -> dict[str, float]:
    """Samples by name and labels, without the model's name."""
    values = {}
    for family in text_string_to_metric_families(http.get("/metrics").text):
        if family.name.startswith(("tgi_", "nv_")):  # which label other things, if any
            continue
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k != "le" or v == "+Inf"}
            assert labels.pop("model_name", None) == "tiny", sample
            assert labels.pop("engine") == "0"
            values[f"{sample.name}{sorted(labels.values())}"] = sample.value
    return values


def test_metrics_count_under_both_names(http: httpx.Client) -> None:
    before = metric_values(http)
    body = {"prompt": "<unk>four<unk>", "max_tokens": 3}
    assert http.post("/v1/completions", json=body).status_code == 200
    after = metric_values(http)
    for prefix in ("octavo_", "vllm:"):
        for name, more in {
            "request_success_total['length']": 1,
            "request_success_total['stop']": 0,
            "prompt_tokens_total[]": 7,
            "generation_tokens_total[]": 3,
            "time_to_first_token_seconds_count[]": 1,
            "e2e_request_latency_seconds_count[]": 1,
            "request_prompt_tokens_sum[]": 7,
            "request_generation_tokens_sum[]": 3,
            "request_params_max_tokens_sum[]": 3,
            "request_params_n_count[]": 1,
        }.items():
            assert after[prefix + name] - before[prefix + name] == more, name


def test_metrics_have_the_gauges_dashboards_need(http: httpx.Client) -> None:
    values = metric_values(http)
    assert values["vllm:num_requests_running[]"] == values["vllm:num_requests_waiting[]"] == 0
    assert values["vllm:kv_cache_usage_perc[]"] == values["vllm:gpu_cache_usage_perc[]"] == 0
    assert values["octavo_kv_blocks[]"] == 256
    assert values["octavo_kv_blocks_free[]"] + values["octavo_kv_blocks_cached[]"] == 256
    assert values["vllm:num_preemptions_total[]"] == 0
    assert values["vllm:cache_config_info['16', '256', 'float32']"] == 1


def test_a_prompt_that_comes_again_is_found(http: httpx.Client) -> None:
    body = {"prompt": "<unk>four<unk> and a beginning of some forty letters", "max_tokens": 3}
    before = metric_values(http)
    usages = [http.post("/v1/completions", json=body).json()["usage"] for _ in range(2)]
    num_tokens = usages[0]["prompt_tokens"]
    found = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert found[0] < 16 and found[1] == num_tokens - 1
    after = metric_values(http)
    for prefix in ("octavo_", "vllm:"):
        for name, more in (("queries", 2 * num_tokens), ("hits", sum(found))):
            name = f"{prefix}prefix_cache_{name}_total[]"
            assert after[name] - before[name] == more, name


def test_a_stop_string_does_not_hide_what_was_found(http: httpx.Client) -> None:
    body = {"prompt": "<unk>abcdefgh<unk> a prompt that stops itself", "stop": "cd"}
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    for more, is_found in (({}, False), (streamed, True), ({}, True)):
        text = http.post("/v1/completions", json={**body, **more}).text
        (cached,) = re.findall(r'"cached_tokens":(\d+)', text)
        assert (int(cached) >= 16) == is_found


def test_salts_keep_requests_apart(http: httpx.Client) -> None:
    body = {"prompt": "<unk>salted<unk> a beginning that only some may share", "max_tokens": 2}
    found = []
    for salt in ("a", "b", "a", None):
        usage = http.post("/v1/completions", json={**body, "cache_salt": salt}).json()["usage"]
        found.append(usage["prompt_tokens_details"]["cached_tokens"] >= 16)
    assert found == [False, False, True, False]


def test_a_request_tells_what_it_cost_when_asked(http: httpx.Client) -> None:
    body = {"prompt": "<unk>abcdefgh<unk>" + "x" * 50, "max_tokens": 8, "n": 2, "temperature": 1}
    assert "kv_cache" not in http.post("/v1/completions", json=body).json()["usage"]
    answer = http.post("/v1/completions", json={**body, "return_kv_usage": True}).json()
    cost = answer["usage"]["kv_cache"]
    num_tokens = answer["usage"]["prompt_tokens"]
    shared = num_tokens // 16  # the prompt's full pages, once for both
    own = -(-(num_tokens + 7) // 16) - shared
    # Both say the same, so what they have filled becomes one page again.
    assert shared + own < cost["peak_blocks"] <= shared + 2 * own
    assert cost["block_seconds"] > 0
    assert (cost["num_preemptions"], cost["num_recomputed_tokens"]) == (0, 0)
    chat = {
        "messages": [{"role": "user", "content": "<unk>abcdefgh<unk>"}],
        "stop": "cd",
        "return_kv_usage": True,
    }
    cost = http.post("/v1/chat/completions", json=chat).json()["usage"]["kv_cache"]
    assert cost["peak_blocks"] > 0  # the engine's last word was waited for


def test_metrics_speak_openmetrics_when_asked(http: httpx.Client) -> None:
    response = http.get("/metrics", headers={"accept": "application/openmetrics-text"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


def test_the_description_lists_routes_and_fields(http: httpx.Client) -> None:
    description = http.get("/openapi.json").json()
    assert {"/v1/completions", "/v1/chat/completions", "/tokenize"} <= set(description["paths"])
    schemas = description["components"]["schemas"]
    assert "max_completion_tokens" in schemas["ChatRequest"]["properties"]
    assert "StreamOptions" in schemas


def test_prompts_are_not_logged(server: RunningServer, http: httpx.Client) -> None:
    http.post("/v1/completions", json={"prompt": "<unk>a<unk>a secret word"})
    http.post("/v1/completions", json={"prompt": "a secret word", "max_tokens": 10_000})
    assert "secret" not in server.log_text()
