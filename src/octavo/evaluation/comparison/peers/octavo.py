"""Octavo itself, run as anybody runs it: by its own commands, each in a process of its own."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octavo.evaluation.comparison.peers.peer import (
    COMPARABLE_STATES,
    Job,
    Run,
    ServerCommand,
    Setting,
    rates,
)
from octavo.evaluation.comparison.peers.program import output_of
from octavo.evaluation.comparison.peers.running_server import HOST, module_command
from octavo.evaluation.comparison.peers.transformers import folder_of
from octavo.evaluation.throughput import WorkItem

WEIGHTS = "weights"
"""The setting that is no flag: which form of the model is read, `gguf` or `bf16`."""
GGUF, BF16 = "gguf", "bf16"
_FACTS = (
    "weight_dtype", "kv_cache_dtype", "num_threads", "instruction_set", "kv_waste_mean",
    "num_preemptions", "num_steps",
)  # fmt: skip


class OctavoSystem:
    """All settings but `weights` are flags of `octavo`."""

    name = "octavo"

    def run(self, job: Job, setting: Setting) -> Run:
        """`octavo bench throughput`, which warms up on other prompts by itself."""
        with tempfile.TemporaryDirectory() as folder:
            workload = write_workload(Path(folder) / "requests.jsonl", job.items)
            report = bench(
                "throughput", "--workload", str(workload), "--model", str(_model(job, setting)),
                "--threads", str(job.num_threads), *_flags(setting),
            )  # fmt: skip
        state = {name: str(report[name]) for name in COMPARABLE_STATES}
        facts = {name: report[name] for name in _FACTS}
        figures = rates(job.items, int(report["num_output_tokens"]), float(report["elapsed_s"]))
        return Run(figures, state, facts)

    def server(self, job: Job, setting: Setting, port: int) -> ServerCommand:
        """`octavo serve`."""
        arguments, variables = module_command(
            "serve", str(_model(job, setting)), "--host", HOST, "--port", str(port),
            "--threads", str(job.num_threads), "--no-speculation", "--no-enable-prefix-caching",
            *_flags(setting),
        )  # fmt: skip
        return ServerCommand(
            tuple(arguments), variables, {"speculation": "off", "prefix_cache": "off"}
        )


def bench(*arguments: str) -> dict[str, Any]:
    """The report of an `octavo bench` in a process of its own. Raises PeerError."""
    command, variables = module_command("bench", *arguments, "--output", "json")
    report: dict[str, Any] = json.loads(
        output_of(f"octavo bench {arguments[0]}", command, variables)
    )
    return report


def write_workload(file: Path, items: Sequence[WorkItem]) -> Path:
    """Requests as `--workload` reads them."""
    lines = [
        {"id": i.id, "prompt_token_ids": i.prompt_token_ids, "max_tokens": i.max_tokens}
        for i in items
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


def _model(job: Job, setting: Setting) -> Path:
    return folder_of(job) if setting[WEIGHTS] == BF16 else job.model.gguf


def _flags(setting: Setting) -> list[str]:
    flags = [(name, value) for name, value in setting.items() if name != WEIGHTS]
    return [part for flag in flags for part in flag]
