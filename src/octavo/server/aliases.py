"""Metrics under the names that Text Generation Inference and Triton have for them, so that their dashboards fit.

Only those whose meaning is the same. Their names do not end in `_total` where Prometheus's convention would have it, so
they are written as samples without a type.
"""

from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily, Metric

from octavo.engine.messages import EngineStats
from octavo.server.histogram import Histogram
from octavo.server.kserve.signature import VERSION
from octavo.server.metrics import Metrics


def tgi_metrics(metrics: Metrics, stats: EngineStats) -> Iterator[Metric]:
    """Text Generation Inference's. A choice counts as a request."""
    finished = metrics.num_finished
    yield _sample("tgi_request_count", "Requests that were begun.", metrics.num_started)
    yield _sample(
        "tgi_request_success", "Requests that ended well.", finished["stop"] + finished["length"]
    )
    failure = Metric("tgi_request_failure", "Requests that did not.", "unknown")
    failure.add_sample("tgi_request_failure", {"err": "generation"}, finished["error"])
    failure.add_sample("tgi_request_failure", {"err": "incomplete"}, finished["abort"])
    yield failure
    yield _sample("tgi_queue_size", "Requests in the queue.", stats.num_waiting)
    yield _sample("tgi_batch_current_size", "Requests in the batch.", stats.num_running)
    yield _sample("tgi_batch_inference_count", "Steps.", stats.num_steps)
    for name, text, histogram in (
        ("duration", "Time from arrival to the end.", metrics.e2e_latency_s),
        (
            "mean_time_per_token_duration",
            "Mean time between tokens.",
            metrics.time_per_output_token_s,
        ),
        ("input_length", "Prompt tokens.", metrics.prompt_tokens),
        ("generated_tokens", "Tokens.", metrics.generation_tokens),
        ("max_new_tokens", "Most tokens that were asked for.", metrics.params_max_tokens),
    ):
        yield _histogram(f"tgi_request_{name}", text, histogram)


def triton_metrics(metrics: Metrics, stats: EngineStats, model: str) -> Iterator[Metric]:
    """Triton's. A choice counts as a request; times are in microseconds."""
    labels = {"model": model, "version": VERSION}
    finished, seconds = metrics.num_finished, metrics.seconds_finished
    num_good = finished["stop"] + finished["length"]
    yield _sample("nv_inference_request_success", "Requests that ended well.", num_good, labels)
    failure = Metric("nv_inference_request_failure", "Requests that did not.", "unknown")
    for reason, count in (("BACKEND", finished["error"]), ("CANCELED", finished["abort"])):
        failure.add_sample(failure.name, {**labels, "reason": reason}, count)
    yield failure
    yield _sample("nv_inference_count", "Inferences.", num_good, labels)
    yield _sample("nv_inference_exec_count", "Steps.", stats.num_steps, labels)
    yield _sample(
        "nv_inference_pending_request_count", "Requests in the queue.", stats.num_waiting, labels
    )
    yield _sample(
        "nv_inference_request_duration_us",
        "Time from arrival to the end, summed over those that ended well.",
        1e6 * (seconds["stop"] + seconds["length"]),
        labels,
    )


def _sample(name: str, text: str, value: float, labels: dict[str, str] | None = None) -> Metric:
    metric = Metric(name, text, "unknown")
    metric.add_sample(name, labels or {}, value)
    return metric


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(name, text)
    family.add_metric([], histogram.cumulative(), histogram.total)
    return family
