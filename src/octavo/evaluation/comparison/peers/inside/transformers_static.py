"""Runs in the environment of Hugging Face transformers: static batches, each until its longest request ends.

Takes the path of a task (JSON) and prints one line `RESULT {...}`.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM


def generate(model: Any, requests: list[dict[str, Any]], batch_size: int) -> int:
    """Run all, in order, `batch_size` at a time. Returns the tokens that were asked for and came."""
    useful = 0
    for start in range(0, len(requests), batch_size):
        batch = requests[start : start + batch_size]
        longest = max(len(request["prompt_token_ids"]) for request in batch)
        ids = torch.zeros((len(batch), longest), dtype=torch.long)
        mask = torch.zeros((len(batch), longest), dtype=torch.long)
        for row, request in enumerate(batch):  # padded on the left, as decoders need it
            prompt = request["prompt_token_ids"]
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        steps = max(request["max_tokens"] for request in batch)
        out = model.generate(
            input_ids=ids, attention_mask=mask, do_sample=False, eos_token_id=None, pad_token_id=0,
            min_new_tokens=steps, max_new_tokens=steps,
        )  # fmt: skip
        came = out.shape[1] - longest
        useful += sum(min(came, request["max_tokens"]) for request in batch)
    return useful


def main() -> None:
    """One leg."""
    task = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(task["num_threads"])
    model = AutoModelForCausalLM.from_pretrained(task["model"], dtype=torch.bfloat16).eval()
    model.generation_config.eos_token_id = None
    batch_size = int(task["setting"]["batch"])
    with torch.inference_mode():
        generate(model, task["warm_up"], batch_size)
        start = time.perf_counter()
        num_output_tokens = generate(model, task["requests"], batch_size)
        elapsed_s = time.perf_counter() - start
    result = {
        "num_output_tokens": num_output_tokens,
        "elapsed_s": elapsed_s,
        "state": {"speculation": "off", "prefix_cache": "off"},  # it has neither unless asked
        "facts": {"weight_dtype": str(model.dtype), "num_threads": torch.get_num_threads()},
    }
    print("RESULT " + json.dumps(result))  # noqa: T201  # what the caller reads


if __name__ == "__main__":
    main()
