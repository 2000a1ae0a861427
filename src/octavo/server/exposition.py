"""/metrics: every number under its `octavo_` name, and under vLLM's name where vLLM has it, so that dashboards fit.
TGI's and Triton's names are written by `aliases`.

Units: seconds, tokens, blocks, bytes, and shares from 0 to 1. Labels: model_name, engine.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from octavo.engine.client import EngineClient
from octavo.engine.metrics import engine_metrics
from octavo.server.aliases import tgi_metrics, triton_metrics
from octavo.server.histogram import Histogram
from octavo.server.metrics import Metrics

_PREFIXES = ("octavo_", "vllm:")
_LABELS = ("model_name", "engine")


def written(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """All metrics of a registry as text for a scraper that accepts `accept`, and its content type."""
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # it trusts the numbers in the header
        encode, content_type = choose_encoder("")
    return encode(registry), content_type


def _alone(own: Metrics) -> Metrics:
    return own


class Exposition(Collector):
    """Writes the metrics of one application."""

    def __init__(self, metrics: Metrics, client: EngineClient, model_name: str | None) -> None:
        self._metrics = metrics
        self.total: Callable[[Metrics], Metrics] = _alone
        """Adds what other front ends have measured, if there are some."""
        self._client = client
        self._model_name = model_name
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def write(self, accept: str) -> tuple[bytes, str]:
        """The text for a scraper that accepts `accept`, and its content type."""
        return written(self._registry, accept)

    def collect(self) -> Iterator[Metric]:
        """Everything, now."""
        metrics = self.total(self._metrics)
        yield from self._requests(metrics)
        yield from self._latencies(metrics)
        yield from self._engine()
        yield from self._settings()
        stats = self._client.stats
        yield from tgi_metrics(metrics, stats)
        yield from triton_metrics(metrics, stats, self._labels()[0])

    def _labels(self) -> list[str]:
        ready = self._client.ready
        return [self._model_name or (ready.model if ready else ""), "0"]

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=_LABELS)
        family.add_metric(self._labels(), value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(name, text, labels=_LABELS)
        family.add_metric(self._labels(), value)
        return family

    def _histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(name, text, labels=_LABELS)
        family.add_metric(self._labels(), histogram.cumulative(), histogram.total)
        return family

    def _requests(self, metrics: Metrics) -> Iterator[Metric]:
        for prefix in _PREFIXES:
            text = "Choices that ended, by reason (a request with n choices counts n times)."
            family = CounterMetricFamily(
                f"{prefix}request_success", text, labels=(*_LABELS, "finished_reason")
            )
            for reason, count in metrics.num_finished.items():
                family.add_metric([*self._labels(), reason], count)
            yield family
            for name, text, histogram in (
                ("request_prompt_tokens", "Prompt tokens of a request.", metrics.prompt_tokens),
                ("request_generation_tokens", "Tokens of a choice.", metrics.generation_tokens),
                (
                    "request_max_num_generation_tokens",
                    "Tokens of the longest choice of a request.",
                    metrics.max_generation_tokens,
                ),
                (
                    "request_params_max_tokens",
                    "max_tokens of a request.",
                    metrics.params_max_tokens,
                ),
                ("request_params_n", "n of a request.", metrics.params_n),
                (
                    "request_prefill_kv_computed_tokens",
                    "Prompt tokens of a request that were not in the prefix cache.",
                    metrics.prefill_computed_tokens,
                ),
            ):
                yield self._histogram(prefix + name, text, histogram)
        yield self._counter(
            "octavo_slow_clients",
            "Connections cut because their client read or wrote too slowly.",
            metrics.num_slow_clients,
        )

    def _latencies(self, metrics: Metrics) -> Iterator[Metric]:
        inter_token = ("Time between tokens of a choice.", metrics.inter_token_latency_s)
        for prefix in _PREFIXES:
            for name, text, histogram in (
                (
                    "time_to_first_token_seconds",
                    "Time from arrival to the first token of a choice.",
                    metrics.time_to_first_token_s,
                ),
                ("inter_token_latency_seconds", *inter_token),
                (
                    "request_time_per_output_token_seconds",
                    "Mean time between tokens, one value a choice.",
                    metrics.time_per_output_token_s,
                ),
                (
                    "e2e_request_latency_seconds",
                    "Time from arrival to the end of a choice.",
                    metrics.e2e_latency_s,
                ),
                (
                    "request_decode_time_seconds",
                    "Time from the first to the last token of a choice.",
                    metrics.decode_time_s,
                ),
            ):
                yield self._histogram(prefix + name, text, histogram)
        yield self._histogram("vllm:time_per_output_token_seconds", *inter_token)

    def _engine(self) -> Iterator[Metric]:
        for metric in engine_metrics(self._client.stats):
            write = self._counter if metric.is_counter else self._gauge
            for name in metric.names:
                yield write(name, metric.text, metric.value)

    def _settings(self) -> Iterator[Metric]:
        ready = self._client.ready
        yield self._gauge(
            "octavo_kv_block_bytes",
            "Bytes of a block, all layers: what the numbers of blocks are to be multiplied by.",
            0 if ready is None else ready.block_bytes,
        )
        if ready is not None:
            labels = {
                "block_size": str(ready.block_size),
                "num_gpu_blocks": str(ready.num_blocks),
                "cache_dtype": ready.kv_cache_dtype,
            }
            for prefix in _PREFIXES:
                info = GaugeMetricFamily(
                    f"{prefix}cache_config_info", "Settings.", labels=(*_LABELS, *labels)
                )
                info.add_metric([*self._labels(), *labels.values()], 1)
                yield info
