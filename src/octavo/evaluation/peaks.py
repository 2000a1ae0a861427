"""The most that this machine reads and computes, measured in this process: what ops are compared with."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from octavo.checkpoints.quants import QuantType
from octavo.models.footprint import StoredWeight, int4_type

Kind: TypeAlias = Literal["float32", "bfloat16", "int8"]
"""The numbers that a multiplication takes."""
KINDS: tuple[Kind, ...] = ("float32", "bfloat16", "int8")
_PLAIN = frozenset((QuantType.F32, QuantType.F16, QuantType.BF16))


@dataclass(frozen=True, slots=True)
class Peaks:
    """All threads together."""

    read_bandwidth: float
    """Bytes per second."""
    operations_per_s: Mapping[Kind, float]
    """Multiplications and additions, by what is multiplied."""

    def least_seconds(self, num_bytes: int, operations: Mapping[Kind, int]) -> float:
        """The roofline: reading and computing at once, each as fast as this machine can."""
        computing = sum(n / self.operations_per_s[kind] for kind, n in operations.items())
        return max(num_bytes / self.read_bandwidth, computing)

    def state(self) -> dict[str, float]:
        """The arithmetic peaks for a report."""
        return {f"peak_{kind}_operations_per_s": self.operations_per_s[kind] for kind in KINDS}


def calibrate(num_threads: int, read_bandwidth: float | None) -> Peaks:
    """Measure how fast these threads multiply, about half a second; the bandwidth is measured already.

    That is None where the kernels do not load, and then nothing here can be measured, either.
    """
    assert read_bandwidth is not None, "the native backend has a bandwidth"
    from octavo import _C  # compiled: loaded with the native backend only

    formats = {
        "float32": _C.ActFormat.F32, "bfloat16": _C.ActFormat.BF16, "int8": _C.ActFormat.INT8,
    }  # fmt: skip
    rates = {kind: _C.operation_rate(formats[kind], num_threads) for kind in KINDS}
    return Peaks(read_bandwidth, MappingProxyType(rates))


def weight_kind(weight: StoredWeight, dtype: str) -> Kind:
    """What a matrix is multiplied as, for dtype auto, float32, bfloat16, int8 or int4."""
    for kind in KINDS:
        if dtype == kind:
            return kind
    quant = int4_type(weight) if dtype == "int4" else weight.quant
    return "bfloat16" if quant in _PLAIN else "int8"


def cache_kind(kv_cache_dtype: str) -> Kind:
    """What keys and values are multiplied as."""
    if kv_cache_dtype == "float32":
        return "float32"
    return "int8" if kv_cache_dtype == "int8" else "bfloat16"
