"""What a leg does: requests all at once, streaming clients of a server, or the start of a server."""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from octavo.evaluation.comparison.peers.octavo import bench, write_workload
from octavo.evaluation.comparison.peers.peer import (
    OUTPUT_RATE,
    PROMPT_RATE,
    Job,
    PeerError,
    Run,
    ServingSystem,
    Setting,
    System,
)
from octavo.evaluation.comparison.peers.running_server import (
    HOST,
    RunningServer,
    free_port,
    running_server,
)

FIRST_TOKEN_P50 = "first_token_p50_ms"
START_TO_FIRST_TOKEN = "start_to_first_token_s"
PSS = "pss_bytes"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a run, by the name it has in `Run.figures`."""

    name: str
    label: str
    more_is_better: bool = True


class Work(Protocol):
    """What is measured of a job."""

    @property
    def figures(self) -> tuple[Figure, ...]:
        """What is compared; the first is what a setting is chosen by."""
        ...

    def measure(self, system: System, job: Job, setting: Setting) -> Run:
        """One leg. Raises PeerError."""
        ...


@dataclass(frozen=True, slots=True)
class Offline:
    """All requests at once, no server between."""

    figures: tuple[Figure, ...] = (Figure(OUTPUT_RATE, "output tok/s"),)

    def measure(self, system: System, job: Job, setting: Setting) -> Run:
        """As the system itself runs them."""
        return system.run(job, setting)


PREFILL = Offline((Figure(PROMPT_RATE, "prompt tok/s"),))
"""For requests of one output token."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Every request is one streaming client of a server; the load comes from `octavo bench serve`."""

    figures: tuple[Figure, ...] = (
        Figure(FIRST_TOKEN_P50, "first token p50, ms", more_is_better=False),
        Figure(OUTPUT_RATE, "output tok/s"),
        Figure(PSS, "memory (PSS), bytes", more_is_better=False),
    )

    def measure(self, system: System, job: Job, setting: Setting) -> Run:
        """One server, loaded once."""
        serving, port = _serving(system), free_port()
        command = serving.server(job, setting, port)
        with running_server(command, port) as server, tempfile.TemporaryDirectory() as folder:
            workload = write_workload(Path(folder) / "requests.jsonl", job.items)
            report = bench("serve", "--url", f"http://{HOST}:{port}", "--workload", str(workload))
            pss = server.pss_bytes()
        return Run(served_figures(report, pss), command.state, _load_facts(report))


@dataclass(frozen=True, slots=True)
class Starting:
    """From the start of a server's process to the first token of its first request."""

    figures: tuple[Figure, ...] = (
        Figure(START_TO_FIRST_TOKEN, "start to first token, s", more_is_better=False),
    )

    def measure(self, system: System, job: Job, setting: Setting) -> Run:
        """One start; the request asks for one token."""
        serving, port = _serving(system), free_port()
        command = serving.server(job, setting, port)
        with running_server(command, port) as server:
            _one_token(server, job)
            seconds = time.perf_counter() - server.started
        return Run({START_TO_FIRST_TOKEN: seconds}, command.state, {})


def served_figures(report: Mapping[str, Any], pss_bytes: int) -> dict[str, float]:
    """The figures of a report of `octavo bench serve`. Raises PeerError if requests failed or ended early."""
    if report["num_failed"] or report["num_short"]:
        raise PeerError(
            f"{report['num_failed']} requests failed ({report['failures']}), {report['num_short']} ended early"
        )
    return {
        OUTPUT_RATE: float(report["output_tokens_per_s"]),
        FIRST_TOKEN_P50: float(report["ttft_ms"]["p50"]),
        PSS: float(pss_bytes),
    }


def _load_facts(report: Mapping[str, Any]) -> dict[str, Any]:
    names = (
        "load_generator_cpu_share",
        "requests_per_s",
        "itl_ms",
    )  # no pauses where all text comes at once
    return {name: report[name] for name in names}


def _serving(system: System) -> ServingSystem:
    if not isinstance(system, ServingSystem):
        raise PeerError(f"{system.name} has no server")
    return system


def _one_token(server: RunningServer, job: Job) -> None:
    prompt = list(job.items[0].prompt_token_ids)
    answer = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0})
    if answer.get("usage", {}).get("completion_tokens") != 1:
        raise PeerError(f"no token came: {str(answer)[:200]}")
