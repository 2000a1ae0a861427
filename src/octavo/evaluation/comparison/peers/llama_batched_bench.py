"""llama.cpp's own benchmark of batches: no server between, but only for requests that are all of one size.

Its prompts are made up, of the lengths of ours.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octavo.evaluation.comparison.peers.peer import Job, PeerError, Run, rates
from octavo.evaluation.comparison.peers.program import last_words, output_of

STATE = {"speculation": "off", "prefix_cache": "off"}


def is_uniform(job: Job) -> bool:
    """Whether all requests have one size."""
    return len({(len(item.prompt_token_ids), item.max_tokens) for item in job.items}) == 1


def run_batched_bench(tool: Path, weights: Path, job: Job, variables: Mapping[str, str]) -> Run:
    """All requests as one batch. Raises PeerError."""
    count, prompt_len = len(job.items), len(job.items[0].prompt_token_ids)
    max_tokens, threads = job.items[0].max_tokens, str(job.num_threads)
    command = [
        str(tool), "--model", str(weights), "--ctx-size", str(count * (prompt_len + max_tokens)),
        "-npp", str(prompt_len), "-ntg", str(max_tokens), "-npl", str(count),
        "--threads", threads, "--threads-batch", threads, "--output-format", "jsonl",
    ]  # fmt: skip
    found = parse_batch(output_of(tool.name, command, variables), count)
    num_output_tokens = int(found["tg"]) * count
    facts = {name: found[name] for name in ("speed_pp", "speed_tg")}
    return Run(rates(job.items, num_output_tokens, found["t_pp"] + found["t_tg"]), STATE, facts)


def parse_batch(stdout: str, count: int) -> dict[str, Any]:
    """The line of the batch of this size. Raises PeerError."""
    for line in stdout.splitlines():
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            if found.get("pl") == count:
                return found
    raise PeerError(f"no line of a batch of {count} came: {last_words(stdout)}")
