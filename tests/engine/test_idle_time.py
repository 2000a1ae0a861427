"""What the engine does while it has nothing to compute."""

from collections.abc import Callable
from pathlib import Path

from octavo.engine.loop import Engine
from octavo.models.model import load_model
from support.engines import engine_over
from support.tiny_models import tiny_folder


def resident_bytes() -> int:
    """Memory of this process that is real."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def count_until_done(use_idle_time: Callable[[], bool], at_most: int) -> int:
    """How often there was something to prepare."""
    for count in range(at_most):
        if not use_idle_time():
            return count
    raise AssertionError(f"still busy after {at_most} times: a core of an idle server for ever")


def test_a_native_pool_grows_in_idle_time_and_then_is_left_alone() -> None:
    model = load_model(tiny_folder("llama"))
    engine = engine_over(model, num_blocks=60_000)
    before = resident_bytes()
    assert count_until_done(engine.use_idle_time, 20_000) > 1
    grown = resident_bytes() - before
    assert (100 << 20) < grown < (300 << 20), f"{grown >> 20} MiB"
    assert not engine.use_idle_time()
    engine.close()


def test_a_runner_without_such_memory_has_nothing_to_prepare() -> None:
    engine: Engine = engine_over(
        load_model(tiny_folder("llama")), num_blocks=16, backend="reference"
    )
    assert count_until_done(engine.use_idle_time, 1) == 0
