"""`LLM` over the tiny text model."""

from typing import Any

from octavo import LLM, SamplingParams
from octavo.outputs import RequestOutput
from support.text_model import text_model_folder

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)


def make_llm(**arguments: Any) -> LLM:
    """On the reference backend with a small pool, unless `arguments` say otherwise."""
    defaults: dict[str, Any] = {"backend": "reference", "num_gpu_blocks_override": 64}
    return LLM(text_model_folder(), **(defaults | arguments))


def token_ids(results: list[RequestOutput]) -> list[list[int]]:
    """The tokens of each result's first sequence."""
    return [result.outputs[0].token_ids for result in results]


def assert_idle(llm: LLM) -> None:
    """Nothing runs, waits or holds a block."""
    stats = llm.kv_stats()
    assert (stats.num_running, stats.num_waiting, stats.num_blocks_referenced) == (0, 0, 0)
