"""What the front end measures. `exposition` writes it out, together with the engine's own numbers.

Latencies are taken where the client feels them: from the arrival of the request to the event that carries the token.
"""

import time
from collections import Counter
from collections.abc import Iterator

from octavo.server.histogram import (
    BETWEEN_TOKENS_S,
    CHOICES,
    REQUEST_S,
    TIME_TO_FIRST_TOKEN_S,
    TOKENS,
    Histogram,
)

FINISH_REASONS = ("stop", "length", "abort", "error")


class Metrics:
    """Counters and histograms of one application. Only its event loop writes them."""

    def __init__(self) -> None:
        self.time_to_first_token_s = Histogram(TIME_TO_FIRST_TOKEN_S)
        self.inter_token_latency_s = Histogram(BETWEEN_TOKENS_S)
        self.time_per_output_token_s = Histogram(BETWEEN_TOKENS_S)
        self.e2e_latency_s = Histogram(REQUEST_S)
        self.decode_time_s = Histogram(REQUEST_S)
        self.prompt_tokens = Histogram(TOKENS)
        self.generation_tokens = Histogram(TOKENS)
        self.max_generation_tokens = Histogram(TOKENS)
        self.params_max_tokens = Histogram(TOKENS)
        self.params_n = Histogram(CHOICES)
        self.prefill_computed_tokens = Histogram(TOKENS)
        self.num_slow_clients = 0
        self.num_started = 0
        """Choices that were begun."""
        self.last_end_s = 0.0
        """When one ended last, in seconds since 1970."""
        self.num_finished: Counter[str] = Counter(dict.fromkeys(FINISH_REASONS, 0))
        self.seconds_finished = dict.fromkeys(FINISH_REASONS, 0.0)
        """Time from arrival to the end, summed over choices."""

    def histograms(self) -> Iterator[tuple[str, Histogram]]:
        """Every histogram with its name."""
        for name, value in vars(self).items():
            if isinstance(value, Histogram):
                yield name, value

    def count_slow_client(self) -> None:
        """A connection was cut because its client read or wrote too slowly."""
        self.num_slow_clients += 1


class ChoiceClock:
    """Measures one choice (one sequence) of a request, from arrival to its end."""

    __slots__ = ("_arrived", "_first", "_has_ended", "_last", "_metrics", "num_tokens")

    def __init__(self, metrics: Metrics, arrived: float) -> None:
        metrics.num_started += 1
        self._metrics = metrics
        self._arrived = arrived
        self._first: float | None = None
        self._last = arrived
        self.num_tokens = 0
        self._has_ended = False

    def tokens(self, count: int) -> None:
        """`count` new tokens came just now."""
        now = time.perf_counter()
        if self._first is None:
            self._first = now
            self._metrics.time_to_first_token_s.observe(now - self._arrived)
        else:
            # Several at once have waited for this process: what lies between them is shared.
            self._metrics.inter_token_latency_s.observe((now - self._last) / count, count)
        self._last = now
        self.num_tokens += count

    def end(self, reason: str) -> None:
        """The choice ends: stop, length, abort or error. Only the first call counts."""
        if self._has_ended:
            return
        self._has_ended = True
        metrics = self._metrics
        metrics.num_finished[reason] += 1
        metrics.last_end_s = time.time()
        latency_s = time.perf_counter() - self._arrived
        metrics.seconds_finished[reason] += latency_s
        metrics.e2e_latency_s.observe(latency_s)
        metrics.generation_tokens.observe(self.num_tokens)
        if self._first is not None:
            decode_s = self._last - self._first
            metrics.decode_time_s.observe(decode_s)
            if self.num_tokens > 1:
                metrics.time_per_output_token_s.observe(decode_s / (self.num_tokens - 1))
