"""More requests than the queue may hold."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from support.answers import COMPLETIONS, complete, script
from support.scripted_engine import MODULE as SCRIPTED
from support.server_process import running_server, tiny_config


def test_a_full_queue_is_a_429_for_the_newest(merged_model: Path) -> None:
    config = tiny_config(merged_model, max_num_seqs=1, max_num_queued_reqs=3)
    body = {"prompt": script("\x04" + "slow " * 20), "max_tokens": 200}
    with (
        running_server(config, engine_module=SCRIPTED) as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
    ):
        bodies = [{**body, "stream": bool(i % 2)} for i in range(12)]
        with ThreadPoolExecutor(12) as pool:
            responses = list(pool.map(lambda one: http.post(COMPLETIONS, json=one), bodies))
        refused = [response for response in responses if response.status_code != 200]
        assert 1 <= len(refused) <= 9
        for response in refused:
            assert response.status_code == 429
            assert int(response.headers["retry-after"]) >= 1
            assert response.headers["content-type"] == "application/json"
            assert response.json()["error"]["type"] == "RateLimitError"
            assert "at most 3" in response.json()["error"]["message"]
        assert complete(http, script("free again")).text == "free again"
        server.wait_idle()
