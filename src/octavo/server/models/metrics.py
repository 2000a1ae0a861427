"""/metrics of a server of several models: those of every model that is loaded, and how the models themselves are."""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from octavo.server.exposition import written
from octavo.server.models.registry import ModelRegistry
from octavo.server.models.slot import SlotState

_SLOW_CLIENTS = "octavo_slow_clients"
_OF_NO_MODEL = (_SLOW_CLIENTS, "tgi_")
"""Beginnings of names without a model in their labels: connections, and what a server of one model calls its own."""


class ModelsExposition(Collector):
    """Writes the metrics of all models; the label `model_name` tells them apart."""

    def __init__(self, registry: ModelRegistry, choices: Mapping[tuple[str, str], int]) -> None:
        """`choices`: requests by (model, why it was chosen); counted elsewhere, read here."""
        self._models = registry
        self._choices = choices
        self._num_slow_clients = 0
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def count_slow_client(self) -> None:
        """A connection was cut because its client read or wrote too slowly."""
        self._num_slow_clients += 1

    def write(self, accept: str) -> tuple[bytes, str]:
        """The text for a scraper that accepts `accept`, and its content type."""
        return written(self._registry, accept)

    def collect(self) -> Iterator[Metric]:
        """Everything, now."""
        yield from self._states()
        families: dict[str, Metric] = {}
        for slot in self._models.slots.values():
            if slot.loaded is None:
                continue
            for metric in slot.loaded.serving.exposition.collect():
                if metric.name.startswith(_OF_NO_MODEL):
                    continue
                if metric.name in families:
                    families[metric.name].samples += metric.samples
                else:
                    families[metric.name] = metric
        yield from families.values()

    def _states(self) -> Iterator[Metric]:
        state = GaugeMetricFamily(
            "octavo_model_state",
            "1 for the state that a model is in, 0 for the others.",
            labels=("model_name", "state"),
        )
        waiting = GaugeMetricFamily(
            "octavo_model_requests_waiting_for_load",
            "Requests that wait for a model to be loaded.",
            labels=("model_name",),
        )
        loads = _counter("octavo_model_loads", "How often a model was loaded.")
        deaths = _counter("octavo_model_engine_deaths", "How often the engine of a model died.")
        for name, slot in self._models.slots.items():
            for value in SlotState:
                state.add_metric((name, value.value), float(slot.state is value))
            waiting.add_metric((name,), slot.num_waiting)
            loads.add_metric((name,), slot.num_loads)
            deaths.add_metric((name,), slot.num_deaths)
        choices = _counter(
            "octavo_model_choices",
            "Requests by the model that answered and why it was chosen.",
            "reason",
        )
        for (name, reason), count in Counter(self._choices).items():
            choices.add_metric((name, reason), count)
        yield from (state, waiting, loads, deaths, choices)
        yield CounterMetricFamily(
            _SLOW_CLIENTS,
            "Connections cut because their client read or wrote too slowly.",
            value=self._num_slow_clients,
        )


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, labels=("model_name", *labels))
