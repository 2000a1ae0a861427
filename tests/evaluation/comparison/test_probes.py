import pytest

from octavo import _C
from octavo.evaluation.comparison.probes import take_reading


def test_a_reading_of_this_machine() -> None:
    reading = take_reading(2)
    assert 1e8 < reading.bandwidth < 1e13
    assert 1 < reading.barrier_ns < 1e7


def test_one_thread_waits_for_nobody() -> None:
    assert _C.barrier_latency(1) < _C.barrier_latency(2) < 1e-2


@pytest.mark.parametrize("kind", [_C.ActFormat.F32, _C.ActFormat.BF16, _C.ActFormat.INT8])
def test_operations_take_time(kind: _C.ActFormat) -> None:
    # No core does more than 16,384 operations a nanosecond, and none that runs this fewer than 0.1: a rate
    # outside says that the compiler left the work out, or that it was not counted.
    assert 1e8 < _C.operation_rate(kind, 1) < 16_384e9


@pytest.mark.parametrize("probe", [_C.barrier_latency, lambda n: _C.operation_rate(_C.ActFormat.F32, n)])  # fmt: skip
def test_a_probe_needs_a_thread(probe: object) -> None:
    assert callable(probe)
    with pytest.raises(ValueError, match="needs a thread"):
        probe(0)
