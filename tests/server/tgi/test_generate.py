"""Text Generation Inference's routes: answers, streams, tokens, and errors in its words."""

import json
from typing import Any

import httpx
import pytest

from support.scripted_engine import Order

MAX_LEN = 1024
PROMPT = "<unk>hello<unk>"
"""The scripted engine says `hello` and ends."""


def generate(http: httpx.Client, inputs: str = PROMPT, **parameters: Any) -> httpx.Response:
    return http.post("/generate", json={"inputs": inputs, "parameters": parameters})


def events(http: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    """The events of a stream, each one line and an empty one; there is no [DONE]."""
    response = http.post("/generate_stream", json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    *frames, last = response.text.split("\n\n")
    assert last == ""
    assert all(frame.startswith("data:") for frame in frames)
    return [json.loads(frame.removeprefix("data:")) for frame in frames]


def test_an_answer_is_its_text_and_nothing_else(http: httpx.Client) -> None:
    response = generate(http)
    assert response.json() == {"generated_text": "hello"}
    assert response.headers["x-generated-tokens"] == "6"  # the end token counts, as in TGI
    assert response.headers["x-compute-characters"] == str(len(PROMPT))
    total = int(response.headers["x-total-time"])
    parts = [response.headers[f"x-{name}-time"] for name in ("validation", "inference")]
    assert abs(sum(map(int, parts)) - total) <= 1


def test_details_list_the_tokens(http: httpx.Client) -> None:
    details = generate(http, details=True).json()["details"]
    assert details["finish_reason"] == "eos_token"
    assert details["generated_tokens"] == 6
    assert details["seed"] is None
    assert details["prefill"] == []
    assert [token["text"] for token in details["tokens"]] == ["h", "e", "l", "l", "o", "<eos>"]
    assert [token["special"] for token in details["tokens"]] == [False] * 5 + [True]
    assert all(token["logprob"] < 0 for token in details["tokens"])
    assert "top_tokens" not in details
    assert "best_of_sequences" not in details


def test_prefill_is_the_prompt_with_its_logprobs(http: httpx.Client) -> None:
    details = generate(http, "ab", decoder_input_details=True, max_new_tokens=1).json()["details"]
    assert [token["text"] for token in details["prefill"]] == ["<bos>", "a", "b"]
    assert details["prefill"][0]["logprob"] is None
    assert all(token["logprob"] <= 0 for token in details["prefill"][1:])


def test_top_tokens_are_as_many_as_asked_for(http: httpx.Client) -> None:
    details = generate(http, details=True, top_n_tokens=3).json()["details"]
    assert [len(top) for top in details["top_tokens"]] == [3] * 6
    assert set(details["top_tokens"][0][0]) == {"id", "text", "logprob", "special"}


@pytest.mark.parametrize("stop", ["l", "lo", "ell"])
def test_a_stop_sequence_stays_in_the_text(http: httpx.Client, stop: str) -> None:
    answer = generate(http, details=True, stop=[stop]).json()
    assert answer["generated_text"] == "hello"[: "hello".index(stop) + len(stop)]
    assert answer["details"]["finish_reason"] == "stop_sequence"


def test_length_is_its_own_reason(http: httpx.Client) -> None:
    answer = generate(http, details=True, max_new_tokens=2).json()
    assert answer["generated_text"] == "he"
    assert answer["details"]["finish_reason"] == "length"


def test_without_a_limit_it_goes_on_to_the_end_of_the_context(http: httpx.Client) -> None:
    details = generate(http, "x", details=True, seed=1).json()["details"]
    assert details["finish_reason"] in ("length", "eos_token")
    if details["finish_reason"] == "length":
        assert details["generated_tokens"] == MAX_LEN - 2


def test_the_full_text_begins_with_the_prompt(http: httpx.Client) -> None:
    assert generate(http, return_full_text=True).json()["generated_text"] == PROMPT + "hello"
    (answer,) = http.post("/", json={"inputs": PROMPT}).json()
    assert answer == {"generated_text": "hello"}


def test_truncate_keeps_the_end_of_the_prompt(http: httpx.Client) -> None:
    details = generate(
        http, "abcdef", truncate=3, decoder_input_details=True, max_new_tokens=1
    ).json()["details"]
    assert [token["text"] for token in details["prefill"]] == ["d", "e", "f"]


def test_sampling_is_off_with_parameters_and_on_without(
    http: httpx.Client, real_http_answer: Any
) -> None:
    """TGI's quirk: no `parameters` at all means do_sample."""
    seeds = [
        events(http, inputs=PROMPT, parameters=parameters)[-1]["details"]["seed"]
        for parameters in (
            {"details": True},
            {"details": True, "do_sample": True},
            {"details": True, "temperature": 0.5},
            {"details": True, "top_k": 5},
            {"details": True, "top_p": 0.5},
        )
    ]
    assert seeds[0] is None
    assert all(isinstance(seed, int) for seed in seeds[1:])
    assert len({real_http_answer({}) for _ in "abc"}) == 1
    assert len({real_http_answer(None) for _ in "abc"}) > 1


def test_a_drawn_seed_gives_the_same_again(http: httpx.Client) -> None:
    asked: dict[str, Any] = {"do_sample": True, "max_new_tokens": 20, "details": True}
    first = generate(http, "x", **asked).json()
    assert generate(http, "x", **asked, seed=first["details"]["seed"]).json() == first
    assert generate(http, "x", seed=2**64 - 1, max_new_tokens=1).status_code == 200


@pytest.mark.parametrize(
    ("name", "value"),
    [("repetition_penalty", 1.5), ("frequency_penalty", 1.5), ("top_k", 1), ("temperature", 1.9)],
)
def test_options_of_sampling_reach_the_sampler(
    real_http_answer: Any, name: str, value: float
) -> None:
    plain = real_http_answer({"seed": 3, "do_sample": name in ("top_k", "temperature")})
    assert real_http_answer({"seed": 3, name: value}) != plain


def test_best_of_shows_the_others(http: httpx.Client) -> None:
    details = generate(http, "x", best_of=2, do_sample=True, max_new_tokens=8, details=True).json()
    best = details["details"]
    (other,) = best["best_of_sequences"]
    mean = [sum(t["logprob"] for t in d["tokens"]) / len(d["tokens"]) for d in (best, other)]
    assert mean[0] >= mean[1]
    assert details["generated_text"] != other["generated_text"]


@pytest.mark.parametrize("path", ["/generate_stream", "/"])
def test_a_stream_has_an_event_for_each_token(http: httpx.Client, path: str) -> None:
    body = {"inputs": PROMPT, "parameters": {"details": True}, "stream": True}
    response = http.post(path, json=body)
    found = [json.loads(frame[5:]) for frame in response.text.split("\n\n")[:-1]]
    assert [event["index"] for event in found] == [1, 2, 3, 4, 5, 6]
    assert [event["token"]["text"] for event in found] == ["h", "e", "l", "l", "o", "<eos>"]
    assert [event["generated_text"] for event in found] == [None] * 5 + ["hello"]
    assert found[-1]["details"] == {
        "finish_reason": "eos_token",
        "generated_tokens": 6,
        "seed": None,
        "input_length": 8,
    }
    assert all(event["details"] is None for event in found[:-1])


def test_a_stream_says_what_the_whole_answer_says(http: httpx.Client) -> None:
    for parameters in ({"stop": ["l"]}, {"max_new_tokens": 3}, {"return_full_text": True}):
        asked = {**parameters, "details": True, "top_n_tokens": 2}
        whole = generate(http, PROMPT, **asked).json()
        found = events(http, inputs=PROMPT, parameters=asked)
        assert found[-1]["generated_text"] == whole["generated_text"]
        assert [event["token"] for event in found] == whole["details"]["tokens"]
        assert [event["top_tokens"] for event in found] == whole["details"]["top_tokens"]
        assert found[-1]["details"]["finish_reason"] == whole["details"]["finish_reason"]
    assert events(http, inputs=PROMPT, parameters={})[-1]["details"] is None


def test_a_failure_in_the_middle_is_an_event(http: httpx.Client) -> None:
    prompt = f"<unk>{chr(Order.SLOW)}{chr(Order.NOT_FINITE)}ab<unk>"
    found = events(http, inputs=prompt)
    assert [event["token"]["text"] for event in found[:-1]] == ["a", "b"]
    assert found[-1]["error_type"] == "generation"
    response = generate(http, prompt)
    assert (response.status_code, response.json()["error_type"]) == (424, "generation")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"temperature": 0}, "`temperature` must be strictly positive"),
        ({"repetition_penalty": 0.0}, "`repetition_penalty` must be strictly positive"),
        ({"frequency_penalty": 2.5}, "`frequency_penalty` must be >= -2.0 and <= 2.0"),
        ({"top_p": 1.0}, "`top_p` must be > 0.0 and < 1.0"),
        ({"top_p": 0.0}, "`top_p` must be > 0.0 and < 1.0"),
        ({"top_k": 0}, "`top_k` must be strictly positive"),
        ({"max_new_tokens": 0}, "`max_new_tokens` must be strictly positive"),
        ({"best_of": 3}, "`best_of` must be > 0 and <= 2. Given: 3"),
        ({"best_of": 2}, "you must use sampling when `best_of` is > 1"),
        ({"best_of": 2, "do_sample": True, "seed": 1}, "`seed` must not be set when `best_of` > 1"),
        ({"stop": list("abcde")}, "`stop` supports up to 4 stop sequences. Given: 5"),
        ({"top_n_tokens": 6}, "`top_n_tokens` must be >= 0 and <= 5. Given: 6"),
        (
            {"truncate": 0},
            f"`truncate` must be strictly positive and less than {MAX_LEN - 1}. Given: 0",
        ),
        (
            {"max_new_tokens": 5000},
            f"`inputs` tokens + `max_new_tokens` must be <= {MAX_LEN}. Given: 8 `inputs` tokens and 5000 "
            "`max_new_tokens`",
        ),
    ],
)
def test_rules_are_told_in_tgis_words(
    http: httpx.Client, parameters: dict[str, Any], message: str
) -> None:
    streams = () if "best_of" in parameters else ("/generate_stream",)
    for path in ("/generate", "/", *streams):
        response = http.post(path, json={"inputs": PROMPT, "parameters": parameters})
        assert response.status_code == 422
        assert response.json() == {
            "error": f"Input validation error: {message}",
            "error_type": "validation",
        }


def test_inputs_that_are_empty_or_too_long(http: httpx.Client) -> None:
    response = generate(http, "")
    assert response.json()["error"] == "Input validation error: `inputs` cannot be empty"
    response = generate(http, "x" * (MAX_LEN - 1))  # and BOS
    assert response.status_code == 422
    assert response.json()["error"] == (
        f"Input validation error: `inputs` must have less than {MAX_LEN} tokens. Given: {MAX_LEN}"
    )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"best_of": 2, "do_sample": True},
            "`best_of` != 1 is not supported when streaming tokens",
        ),
        (
            {"decoder_input_details": True},
            "`decoder_input_details` == true is not supported when streaming tokens",
        ),
    ],
)
def test_what_cannot_be_streamed(
    http: httpx.Client, parameters: dict[str, Any], message: str
) -> None:
    response = http.post("/generate_stream", json={"inputs": PROMPT, "parameters": parameters})
    assert response.status_code == 422
    assert response.json()["error"] == f"Input validation error: {message}"


@pytest.mark.parametrize(
    ("name", "value", "harmless"),
    [
        ("typical_p", 0.5, None),
        ("watermark", True, False),
        ("adapter_id", "x", None),
    ],
)
def test_what_is_not_available_is_refused_by_name(
    http: httpx.Client, name: str, value: object, harmless: object
) -> None:
    response = generate(http, PROMPT, **{name: value})
    assert response.status_code == 422
    assert name in response.json()["error"]
    assert generate(http, PROMPT, **{name: harmless}).status_code == 200


def test_unknown_fields_are_named(http: httpx.Client) -> None:
    response = http.post(
        "/generate", json={"inputs": PROMPT, "what": 1, "parameters": {"colour": 2}}
    )
    assert response.headers["x-octavo-ignored-fields"] == "what, parameters.colour"


def test_errors_of_http_have_tgis_shape(http: httpx.Client) -> None:
    for response in (
        http.get("/generate"),
        http.post("/generate", content=b"x", headers={"content-type": "text/plain"}),
        http.post("/generate", content=b"{", headers={"content-type": "application/json"}),
    ):
        assert set(response.json()) == {"error", "error_type"}
        assert 400 <= response.status_code < 500


def test_tokenize_is_told_apart_by_the_body(http: httpx.Client) -> None:
    tokens = http.post("/tokenize", json={"inputs": "aé<|turn|>"}).json()
    assert [(t["text"], t["start"], t["stop"]) for t in tokens] == [
        ("", 0, 0),
        ("a", 0, 1),
        ("é", 1, 2),
        ("é", 1, 2),
        ("<|turn|>", 2, 10),
    ]
    vllm = http.post("/tokenize", json={"prompt": "aé<|turn|>"}).json()
    assert [token["id"] for token in tokens] == vllm["tokens"]
    wrong = http.post("/tokenize", json={"inputs": 7})
    assert (wrong.status_code, wrong.json()["error_type"]) == (422, "validation")
    assert "message" in http.post("/tokenize", json={"prompt": 7}).json()["error"]


def test_chat_tokenize_shows_the_text_and_its_tokens(http: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    answer = http.post("/chat_tokenize", json=body).json()
    assert answer["templated_text"] == "<bos><|turn|>user:hi\n<|turn|>assistant:"
    tokens = answer["tokenize_response"]
    assert "".join(token["text"] for token in tokens) == answer["templated_text"]
    assert [t["id"] for t in tokens] == http.post("/tokenize", json=body).json()["tokens"]
    wrong = http.post("/chat_tokenize", json={"messages": []})
    assert (wrong.status_code, wrong.json()["error_type"]) == (422, "validation")


def test_info_tells_the_limits(http: httpx.Client) -> None:
    info = http.get("/info").json()
    assert info["model_id"] == "tiny"
    assert (info["max_input_tokens"], info["max_total_tokens"]) == (MAX_LEN - 1, MAX_LEN)
    assert (info["max_best_of"], info["max_stop_sequences"]) == (2, 4)
    assert http.head("/health").status_code == http.get("/health").status_code == 200
