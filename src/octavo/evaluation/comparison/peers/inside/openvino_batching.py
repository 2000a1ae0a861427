"""Runs in the environment of OpenVINO GenAI: continuous batching of all requests at once.

Takes the path of a task (JSON) and prints one line `RESULT {...}`.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai


def generate(pipeline: Any, requests: list[dict[str, Any]]) -> int:
    """Run all; the tokens that came."""
    prompts = [
        openvino.Tensor(np.array([request["prompt_token_ids"]], dtype=np.int64))
        for request in requests
    ]
    configs = []
    for request in requests:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = request["max_tokens"]
        config.ignore_eos = True
        config.do_sample = False
        configs.append(config)
    results = pipeline.generate(prompts, configs)
    return sum(len(result.m_generation_ids[0]) for result in results)


def main() -> None:
    """One leg."""
    task = json.loads(Path(sys.argv[1]).read_text())
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.max_num_seqs = int(task["setting"]["max_num_seqs"])
    properties = {"INFERENCE_NUM_THREADS": task["num_threads"]}
    pipeline = openvino_genai.ContinuousBatchingPipeline(
        task["model"], scheduler, "CPU", properties
    )
    generate(pipeline, task["warm_up"])
    start = time.perf_counter()
    num_output_tokens = generate(pipeline, task["requests"])
    elapsed_s = time.perf_counter() - start
    result = {
        "num_output_tokens": num_output_tokens,
        "elapsed_s": elapsed_s,
        "state": {
            "speculation": "off",  # it takes a draft model, which it was not given
            "prefix_cache": "on" if scheduler.enable_prefix_caching else "off",
        },
        "facts": {"max_num_batched_tokens": scheduler.max_num_batched_tokens},
    }
    print("RESULT " + json.dumps(result))  # noqa: T201  # what the caller reads


if __name__ == "__main__":
    main()
