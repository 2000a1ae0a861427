"""TGI's and Triton's names for metrics, beside ours."""

import httpx

from support.server_process import RunningServer


def test_the_same_things_are_counted_under_their_names(
    http: httpx.Client, server: RunningServer
) -> None:
    before = server.metrics()
    for _ in range(3):
        http.post("/generate", json={"inputs": "<unk>hello<unk>", "parameters": {}})
    http.post("/generate", json={"inputs": "", "parameters": {}})  # refused: never begun
    server.wait_idle()
    after = server.metrics()

    def grown(name: str) -> float:
        return after[name] - before[name]

    assert grown("tgi_request_count") == grown("tgi_request_success") == 3
    assert grown("tgi_request_failure") == 0
    assert grown("tgi_request_duration_count") == grown("tgi_request_input_length_count") == 3
    assert grown("tgi_request_generated_tokens_sum") == 18
    assert grown("nv_inference_request_success") == grown("nv_inference_count") == 3
    assert grown("nv_inference_request_duration_us") > 0
    assert after["tgi_queue_size"] == after["nv_inference_pending_request_count"] == 0


def test_names_and_labels_are_exactly_theirs(http: httpx.Client) -> None:
    text = http.get("/metrics").text
    assert "\ntgi_request_count " in text
    assert '\ntgi_request_failure{err="generation"} ' in text
    assert '\nnv_inference_request_success{model="tiny",version="1"} ' in text
    assert "tgi_request_count_total" not in text
