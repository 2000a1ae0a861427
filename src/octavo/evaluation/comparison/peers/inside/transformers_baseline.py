"""Runs in an environment that has Hugging Face transformers: how requests fare there, one static batch after another.

Takes the path of a task (JSON) and prints one line `RESULT {...}`.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers


def generate(model: Any, batch: list[dict[str, Any]]) -> dict[str, Any]:
    """One batch: when it began, when each of its tokens came, and the bytes that its cache held at the end."""
    longest = max(len(request["prompt_token_ids"]) for request in batch)
    ids = torch.zeros((len(batch), longest), dtype=torch.long)
    mask = torch.zeros((len(batch), longest), dtype=torch.long)
    for row, request in enumerate(batch):  # padded on the left, as decoders need it
        prompt = request["prompt_token_ids"]
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    steps = max(request["max_tokens"] for request in batch)
    token_times: list[float] = []

    def note_time(input_ids: Any, _scores: Any, **_kwargs: Any) -> Any:
        token_times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)

    start = time.perf_counter()
    out = model.generate(
        input_ids=ids, attention_mask=mask, do_sample=False, eos_token_id=None, pad_token_id=0,
        min_new_tokens=steps, max_new_tokens=steps, return_dict_in_generate=True,
        stopping_criteria=transformers.StoppingCriteriaList([note_time]),
    )  # fmt: skip
    layers = out.past_key_values.layers
    tensors = [tensor for layer in layers for tensor in (layer.keys, layer.values)]
    return {
        "start": start,
        "token_times": token_times,
        "cache_bytes": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
    }


def main() -> None:
    """All batches, after one to warm up."""
    task = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(task["num_threads"])
    dtype = torch.bfloat16
    model = transformers.AutoModelForCausalLM.from_pretrained(task["model"], dtype=dtype).eval()
    model.generation_config.eos_token_id = None
    size = int(task["setting"]["batch"])
    requests = task["requests"]
    with torch.inference_mode():
        generate(model, task["warm_up"])
        batches = [generate(model, requests[i : i + size]) for i in range(0, len(requests), size)]
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    print("RESULT " + json.dumps({"batches": batches, "versions": versions}))  # noqa: T201  # what the caller reads


if __name__ == "__main__":
    main()
