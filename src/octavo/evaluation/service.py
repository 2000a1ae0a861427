"""What a load on a server came to: latencies, throughput, and the requests that were served well enough."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from octavo.errors import ConfigError
from octavo.evaluation.completion_stream import Answer
from octavo.evaluation.load import Load
from octavo.evaluation.percentiles import Summary, summarize

MS = 1000.0


@dataclass(frozen=True, slots=True)
class Latencies:
    """The latencies of one answered request, in ms."""

    ttft_ms: float
    """From the request to the first piece of text."""
    itl_ms: tuple[float, ...]
    """Between pieces of text that follow each other."""
    tpot_ms: float | None
    """Mean time of each token after the first; None for answers of one token."""
    e2e_ms: float
    """From the request to the last piece."""


@dataclass(frozen=True, slots=True)
class ServiceReport:
    """The figures of a run. Latencies in ms, over the requests that succeeded."""

    num_requests: int
    num_failed: int
    failures: Mapping[str, int]
    """How often each reason came."""
    num_short: int
    """Answers with fewer tokens than were asked for: the server did not ignore end tokens."""
    num_output_tokens: int
    num_prompt_tokens: int
    output_tokens_per_s: float
    requests_per_s: float
    ttft_ms: Summary | None
    itl_ms: Summary | None
    tpot_ms: Summary | None
    e2e_ms: Summary | None
    num_good: int | None
    """Requests that kept every limit; None without limits."""
    goodput_requests_per_s: float | None


_MEASURES: Mapping[str, Callable[[Latencies], float]] = {
    "ttft_ms": lambda latencies: latencies.ttft_ms,
    "itl_ms": lambda latencies: max(latencies.itl_ms, default=0.0),
    "tpot_ms": lambda latencies: latencies.tpot_ms or 0.0,
    "e2e_ms": lambda latencies: latencies.e2e_ms,
}
"""What a limit bounds. For itl_ms it is the longest pause of a request."""


def parse_limits(text: str) -> dict[str, float]:
    """Read ttft_ms:500,itl_ms:50. Raises ConfigError."""
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition(":")
        try:
            limits[name] = float(value)
        except ValueError:
            limits[name] = -1.0
        if name not in _MEASURES or not limits[name] > 0:
            raise ConfigError(
                f"--goodput takes NAME:MS with NAME one of {', '.join(_MEASURES)}, as in "
                f"ttft_ms:500,itl_ms:50; given: {text}"
            )
    return limits


def latencies_of(answer: Answer) -> Latencies | None:
    """The latencies of an answer; None if it failed."""
    if answer.error is not None or answer.end is None:
        return None
    first = answer.text_times[0]
    more = answer.num_output_tokens - 1
    return Latencies(
        ttft_ms=(first - answer.start) * MS,
        itl_ms=tuple((b - a) * MS for a, b in pairwise(answer.text_times)),
        tpot_ms=(answer.end - first) / more * MS if more > 0 else None,
        e2e_ms=(answer.end - answer.start) * MS,
    )


def is_good(latencies: Latencies, limits: Mapping[str, float]) -> bool:
    """Whether a request kept every limit."""
    return all(_MEASURES[name](latencies) <= limit for name, limit in limits.items())


def report_of(load: Load, limits: Mapping[str, float] | None = None) -> ServiceReport:
    """The figures of a run. A request that failed is not good."""
    answered = [(a, found) for a in load.answers if (found := latencies_of(a)) is not None]
    latencies = [found for _, found in answered]
    num_output_tokens = sum(answer.num_output_tokens for answer, _ in answered)
    num_good = None if limits is None else sum(is_good(found, limits) for found in latencies)
    return ServiceReport(
        num_requests=len(load.answers),
        num_failed=len(load.answers) - len(answered),
        failures=dict(Counter(a.error or "no text came" for a in _failed(load.answers))),
        num_short=sum(a.num_output_tokens < a.item.max_tokens for a, _ in answered),
        num_output_tokens=num_output_tokens,
        num_prompt_tokens=sum(len(a.item.prompt_token_ids) for a, _ in answered),
        output_tokens_per_s=_rate(num_output_tokens, load.elapsed_s),
        requests_per_s=_rate(len(answered), load.elapsed_s),
        ttft_ms=summarize([found.ttft_ms for found in latencies]),
        itl_ms=summarize([gap for found in latencies for gap in found.itl_ms]),
        tpot_ms=summarize([found.tpot_ms for found in latencies if found.tpot_ms is not None]),
        e2e_ms=summarize([found.e2e_ms for found in latencies]),
        num_good=num_good,
        goodput_requests_per_s=None if num_good is None else _rate(num_good, load.elapsed_s),
    )


def _failed(answers: Sequence[Answer]) -> list[Answer]:
    return [answer for answer in answers if latencies_of(answer) is None]


def _rate(count: int, elapsed_s: float) -> float:
    return count / elapsed_s if elapsed_s > 0 else 0.0
