"""When a simulation counts as near to what was measured. The measuring is in `test_run`."""

from dataclasses import replace

import pytest

from octavo.evaluation.validate.trials import Trial
from octavo.evaluation.validate.verdict import LIMITS, Comparison, Medians, Validated

MEASURED = Medians(tokens_per_s=100.0, mean_batch=4.0, itl_s=0.01, ttft_s=0.05, latency_s=0.012)


def compared(share: float = 0.6, **times: float) -> Comparison:
    """Simulated as measured, but for these factors."""
    values = {name: getattr(MEASURED, name) * times.get(name, 1.0) for name in LIMITS}
    return Comparison(Trial("load", share, 2.0, 64), MEASURED, replace(MEASURED, **values), 3)


def validated(*comparisons: Comparison) -> Validated:
    return Validated(comparisons, fit_errors=[0.0], wakes_s=[0.0])


def ranked(*latencies: tuple[float, float]) -> Validated:
    """Settings at 85 %, each with a measured and a simulated latency."""
    return validated(
        *(
            Comparison(
                Trial("load", 0.85, 2.0, seats),
                replace(MEASURED, latency_s=measured),
                replace(MEASURED, latency_s=simulated),
                3,
            )
            for seats, (measured, simulated) in enumerate(latencies)
        )
    )


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("sign", [-1, 1])
def test_each_figure_has_its_limit(name: str, sign: int) -> None:
    limit = LIMITS[name]
    near = compared(0.6, **{name: 1 + sign * 0.99 * limit})
    too_far = compared(0.6, **{name: 1 + sign * 1.01 * limit})
    assert [line.figure for line in too_far.lines() if not line.holds] == [name]
    assert validated(compared(), near).holds
    assert not validated(compared(), too_far).holds


def test_what_is_missing_does_not_hold() -> None:
    assert not replace(validated(compared()), missing=[compared().trial]).holds


def test_near_the_capacity_only_the_order_counts() -> None:
    assert validated(compared(share=0.85, ttft_s=3.0)).holds
    assert ranked((0.01, 0.02), (0.02, 0.05), (0.05, 0.06)).holds
    wrong = ranked((0.01, 0.02), (0.02, 0.01), (0.05, 0.06))
    assert not wrong.is_order_right("load")
    assert not wrong.holds
    assert ranked((0.0100, 0.02), (0.0105, 0.01)).holds, "alike: they have no order"
