"""What figures depend on: the mode a model runs in, and the machine at that moment."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from octavo.config import Backend, EngineConfig

if TYPE_CHECKING:
    from octavo.engine.messages import Ready

BANDWIDTH_BYTES = 256 << 20
"""Beyond every cache: what decoding reads its weights at."""


def engine_state(ready: "Ready") -> dict[str, Any]:
    """The mode of an engine."""
    return {
        "speculation": ready.speculation,
        "prefix_cache": "on, empty at the start" if ready.prefix_caching else "off",
        "weight_dtype": ready.dtype,
        "kv_cache_dtype": ready.kv_cache_dtype,
        "block_size": ready.block_size,
        "num_blocks": ready.num_blocks,
        "max_num_seqs": ready.max_num_seqs,
        "max_num_batched_tokens": ready.max_num_batched_tokens,
        "instruction_set": ready.isa,
        "num_threads": ready.num_threads,
    }


def without_speculation(config: EngineConfig) -> EngineConfig:
    """The settings of a benchmark. Guesses pay by how much a text repeats itself, which `bench speculation` measures."""
    return replace(config, speculation=False, speculative_config=None)


class BandwidthProbe:
    """Reads memory with the threads of the engine, before and after a measurement: machines change under it."""

    def __init__(self, num_threads: int, backend: Backend) -> None:
        """Measure the first time. The reference backend may run where the kernels do not load: nothing is measured."""
        self._num_threads = num_threads
        self._is_possible = backend is not Backend.REFERENCE
        self._values = [self._measure()]

    def again(self) -> None:
        """Measure once more."""
        self._values.append(self._measure())

    @property
    def mean(self) -> float | None:
        """Bytes per second over all measurements."""
        known = [value for value in self._values if value is not None]
        return sum(known) / len(known) if known else None

    def state(self) -> dict[str, Any]:
        """The first and the last measurement, bytes per second."""
        return {
            "read_bandwidth_bytes_per_s": self._values[0],
            "read_bandwidth_after_bytes_per_s": self._values[-1],
        }

    def _measure(self) -> float | None:
        if not self._is_possible:
            return None
        from octavo import _C  # compiled: loaded with the native backend only

        bandwidth: float = _C.read_bandwidth(BANDWIDTH_BYTES, self._num_threads)
        return bandwidth
