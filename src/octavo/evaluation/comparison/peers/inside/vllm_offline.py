"""Runs in the environment of vLLM's CPU build: all requests at once.

Takes the path of a task (JSON) and prints one line `RESULT {...}`.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams


def generate(llm: Any, requests: list[dict[str, Any]]) -> int:
    """Run all; the tokens that came."""
    prompts = [{"prompt_token_ids": request["prompt_token_ids"]} for request in requests]
    params = [
        SamplingParams(
            temperature=0.0, max_tokens=request["max_tokens"], ignore_eos=True, detokenize=False
        )
        for request in requests
    ]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return sum(len(output.outputs[0].token_ids) for output in outputs)


def main() -> None:
    """One leg."""
    task = json.loads(Path(sys.argv[1]).read_text())
    llm = LLM(
        task["model"],
        dtype="bfloat16",
        max_model_len=task["max_model_len"],
        max_num_seqs=int(task["setting"]["max_num_seqs"]),
        enable_prefix_caching=False,
        seed=0,
    )
    generate(llm, task["warm_up"])
    start = time.perf_counter()
    num_output_tokens = generate(llm, task["requests"])
    elapsed_s = time.perf_counter() - start
    engine = llm.llm_engine.vllm_config
    result = {
        "num_output_tokens": num_output_tokens,
        "elapsed_s": elapsed_s,
        "state": {
            "speculation": "off" if engine.speculative_config is None else "on",
            "prefix_cache": "on" if engine.cache_config.enable_prefix_caching else "off",
        },
        "facts": {"weight_dtype": str(engine.model_config.dtype)},
    }
    print("RESULT " + json.dumps(result))  # noqa: T201  # what the caller reads


if __name__ == "__main__":
    main()
