"""`LLM` with a swap space, and with a prefix cache that outlives it, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from octavo.errors import ConfigError
from support.offline import make_llm, token_ids

PARAMS = SamplingParams(temperature=0.0, max_tokens=50, ignore_eos=True)
PROMPTS = [[5 + i % 7 for i in range(length)] for length in (15, 33, 14, 12, 21)]
TOKEN_PROMPTS: Any = [{"prompt_token_ids": prompt} for prompt in PROMPTS]


def answers(llm: LLM) -> list[list[int]]:
    return token_ids(llm.generate(TOKEN_PROMPTS, PARAMS, use_tqdm=False))


@pytest.fixture(scope="module")
def wanted() -> list[list[int]]:
    llm = make_llm(enable_prefix_caching=False)
    tokens = answers(llm)
    llm.close()
    return tokens


def test_a_small_pool_with_swap_space(wanted: list[list[int]], tmp_path: Path) -> None:
    llm = make_llm(num_gpu_blocks_override=8, swap_space=0.01, swap_dir=str(tmp_path))
    assert answers(llm) == wanted
    stats = llm.kv_stats()
    assert stats.num_swap_slots > 0
    assert stats.swap_page_seconds > 0
    assert stats.num_preemptions > 0
    assert (stats.num_swap_slots_used, stats.num_blocks_failed) == (0, 0)
    llm.close()


def test_settings_that_cannot_work_are_refused(tmp_path: Path) -> None:
    for arguments, text in (
        ({"swap_space": 1e9}, "swap_space takes .* bytes .* are free"),
        ({"swap_dir": "/tmp"}, "swap_dir has no effect without swap_space"),
        ({"swap_space": -1}, "swap_space must be at least 0"),
        ({"kv_cache_dir": "x", "enable_prefix_caching": False}, "kv_cache_dir .*turned off"),
        ({"kv_cache_dir": str(tmp_path), "kv_cache_dir_size": 5000}, "at least one page"),
    ):
        with pytest.raises(ConfigError, match=text):
            make_llm(**arguments)


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_prefixes_are_found_by_the_next_process(
    wanted: list[list[int]], tmp_path: Path, backend: str
) -> None:
    def run(**arguments: Any) -> int:
        llm = make_llm(backend=backend, kv_cache_dir=str(tmp_path), **arguments)
        assert answers(llm) == wanted
        num_loaded = llm.kv_stats().num_blocks_loaded
        llm.close()
        return num_loaded

    assert run(dtype="float32") == 0
    assert run(dtype="float32") > 0
    # Other settings, other pages.
    assert run(dtype="float32", block_size=32) == 0
    assert run(dtype="float32", block_size=32) > 0


CHILD = """
import sys
sys.path.insert(0, {tests!r})
from offline.test_memory_tiers import answers
from support.offline import make_llm
llm = make_llm(kv_cache_dir={folder!r})
print("loaded", flush=True)
while True:
    answers(llm)
    llm.reset_prefix_cache()
"""


def test_a_killed_process_leaves_nothing_wrong(wanted: list[list[int]], tmp_path: Path) -> None:
    code = CHILD.format(tests=str(Path(__file__).parents[1]), folder=str(tmp_path))
    for seconds in (0.1, 0.5):
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"loaded\n"
        time.sleep(seconds)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        llm = make_llm(kv_cache_dir=str(tmp_path))
        assert answers(llm) == wanted
        llm.close()
