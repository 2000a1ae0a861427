"""From the command line to the requests that are simulated."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.cli.simulation.options import LoadOptions
from octavo.cli.terminal import note
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.planning.capacity import Load
    from octavo.planning.requests import SimRequest
    from octavo.planning.workloads import Population

DEFAULT_RATE = 1.0
DEFAULT_REQUESTS = 1000
DEFAULT_SECONDS = 300.0
MADE_UP_ALONE = ("prefix_tokens", "prefixes", "turns", "pause")
"""What a trace brings itself."""


def requests_of(
    load: LoadOptions, rate: float | None, num_requests: int | None, max_model_len: int
) -> "list[SimRequest]":
    """The requests; those of a trace that do not fit the context are left out, and counted on stderr."""
    from octavo.planning.traces import at_rate
    from octavo.planning.workloads import make_requests

    if rate is not None and not rate > 0:
        raise ConfigError(f"--rate must be above 0; given: {rate}")
    if num_requests is not None and num_requests < 1:
        raise ConfigError(f"--requests must be at least 1; given: {num_requests}")
    if not _is_trace(load):
        return make_requests(
            _population(load),
            DEFAULT_RATE if rate is None else rate,
            num_requests or DEFAULT_REQUESTS,
            max_model_len=max_model_len,
            seed=load.seed,
        )
    requests = recorded(load, max_model_len)[:num_requests]
    return requests if rate is None else at_rate(requests, rate, load.seed)


def load_of(load: LoadOptions, seconds: float | None, max_model_len: int) -> "Load":
    """Requests that can come at any rate: for some time, or those of a trace."""
    from octavo.planning.capacity import MadeUpLoad, RecordedLoad

    if seconds is not None and not seconds > 0:
        raise ConfigError(f"--seconds must be above 0; given: {seconds}")
    if not _is_trace(load):
        return MadeUpLoad(_population(load), seconds or DEFAULT_SECONDS, max_model_len, load.seed)
    if seconds is not None:
        raise ConfigError(f"--seconds is for made-up loads; {load.workload} has its own length")
    return RecordedLoad(tuple(recorded(load, max_model_len)), load.seed)


def _is_trace(load: LoadOptions) -> bool:
    return Path(load.workload).is_file()


def _population(load: LoadOptions) -> "Population":
    """Of a made-up load. Raises ConfigError."""
    from octavo.planning.workloads import population

    for option, value, low in (
        ("-n", load.n, 1), ("--prefixes", load.prefixes, 1), ("--turns", load.turns, 1),
        ("--prefix-tokens", load.prefix_tokens, 0), ("--pause", load.pause, 0),
    ):  # fmt: skip
        if not value >= low:
            raise ConfigError(f"{option} must be at least {low}; given: {value}")
    return replace(
        population(load.workload),
        n=load.n,
        prefix_len=load.prefix_tokens,
        num_prefixes=load.prefixes,
        turns=load.turns,
        pause_s=load.pause,
    )


def recorded(load: LoadOptions, max_model_len: int) -> "list[SimRequest]":
    """Those of a trace that fit the context. Raises ConfigError."""
    from octavo.planning.traces import fitting, read_trace

    made_up = LoadOptions()
    for name in MADE_UP_ALONE:
        if getattr(load, name) != getattr(made_up, name):
            option = "--" + name.replace("_", "-")
            raise ConfigError(f"{option} is for made-up loads; {load.workload} is a trace")
    requests, num_left_out = fitting(read_trace(Path(load.workload)), max_model_len)
    if num_left_out:
        note(f"{num_left_out} requests are longer than {max_model_len} tokens and left out")
    if not requests:
        raise ConfigError(f"{load.workload}: no request fits into {max_model_len} tokens")
    return requests if load.n == 1 else [replace(r, n=load.n, answers=()) for r in requests]
