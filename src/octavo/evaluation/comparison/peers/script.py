"""Runs one of the scripts in `inside` with the Python of a peer's environment."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.evaluation.comparison.peers.environment import Environment
from octavo.evaluation.comparison.peers.peer import Job, PeerError, Run, Setting, rates
from octavo.evaluation.comparison.peers.program import last_words, run_program
from octavo.evaluation.throughput import WorkItem

INSIDE = Path(__file__).parent / "inside"
RESULT = "RESULT "
"""What the line begins with that a script ends with; libraries print lines of their own."""


def run_script(
    environment: Environment,
    script: str,
    model: Path,
    job: Job,
    setting: Setting,
    variables: Mapping[str, str],
) -> Run:
    """The requests of a job in a fresh process. Raises PeerError."""
    found = call_script(environment.python, script, model, job, setting, variables)
    figures = rates(job.items, int(found["num_output_tokens"]), float(found["elapsed_s"]))
    return Run(figures, found["state"], found["facts"])


def call_script(
    python: Path,
    script: str,
    model: Path,
    job: Job,
    setting: Setting,
    variables: Mapping[str, str],
) -> dict[str, Any]:
    """What a script found. Raises PeerError."""
    task = {
        "model": str(model),
        "num_threads": job.num_threads,
        "max_model_len": job.max_model_len,
        "requests": _requests(job.items),
        "warm_up": _requests(job.warm_up),
        "setting": dict(setting),
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(task, file)
        file.flush()
        command = [str(python), str(INSIDE / script), file.name]
        done = run_program(script, command, {"OMP_NUM_THREADS": str(job.num_threads), **variables})
    return parse_result(done.stdout, done.stderr)


def parse_result(stdout: str, stderr: str) -> dict[str, Any]:
    """What a script reported with its last line. Raises PeerError with what it said instead."""
    lines = [line for line in stdout.splitlines() if line.startswith(RESULT)]
    if not lines:
        raise PeerError(f"no result came: {last_words(stderr or stdout)}")
    found: dict[str, Any] = json.loads(lines[-1].removeprefix(RESULT))
    return found


def _requests(items: Sequence[WorkItem]) -> list[dict[str, Any]]:
    return [
        {"prompt_token_ids": list(item.prompt_token_ids), "max_tokens": item.max_tokens}
        for item in items
    ]
