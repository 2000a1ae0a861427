"""What is measured while the machine becomes another is measured again, and costs with it."""

from array import array
from collections.abc import Callable, Iterator
from itertools import chain, count, repeat

from octavo.config import CacheConfig, EngineConfig, ModelConfig
from octavo.evaluation.comparison.probes import CpuTimes, Reading, Watch
from octavo.evaluation.validate.run import Validation
from octavo.evaluation.validate.verdict import Validated
from octavo.planning.requests import SimRequest
from support.tiny_models import tiny_folder

REQUESTS = [SimRequest(f"r{i}", 0.0, array("i", range(1, 9)), 4) for i in range(6)]
NUM_TRIALS = 5
PROFILE_AND_CAPACITY = 4
"""Readings: before and after each of the two."""


def validated(bandwidths: Iterator[float]) -> Validated:
    """One round on a machine that reads memory at these rates, one by one."""
    watch: Callable[[], Watch] = lambda: Watch(  # noqa: E731
        lambda: Reading(next(bandwidths), 60.0), lambda: CpuTimes(0.0, 0.0, 0.0)
    )
    config = EngineConfig(
        model=ModelConfig(str(tiny_folder("llama")), max_model_len=64),
        cache=CacheConfig(num_blocks=64),
        speculation=False,
    )
    return Validation(config, {"load": REQUESTS}, 1, 0.4, watch).run()


def test_a_machine_that_stays() -> None:
    found = validated(repeat(50.0))
    assert [c.trial.max_num_seqs for c in found.comparisons] == [256, 256, 256, 2, 4]
    assert all(c.num_runs == 1 for c in found.comparisons)
    assert not found.repeated and not found.missing
    assert len(found.wakes_s) == 1 and len(found.fit_errors) > 100


def test_a_machine_that_has_become_another_is_profiled_again() -> None:
    """The second trial is the first to see it; all that follow belong to the new costs."""
    found = validated(chain(repeat(50.0, PROFILE_AND_CAPACITY + 2), repeat(100.0)))
    (repeated,) = found.repeated
    assert repeated.what == "load at 60% with 256 seqs"
    assert repeated.reason == "read bandwidth changed by 100%"
    assert not found.missing and len(found.wakes_s) == 2


def test_a_machine_that_never_stays_is_said_to() -> None:
    found = validated(float(1 << number) for number in count())
    assert len(found.missing) == NUM_TRIALS and not found.comparisons
    assert not found.holds
    assert {repeated.what for repeated in found.repeated} == {
        "costs of steps",
        *map(str, found.missing),
    }
