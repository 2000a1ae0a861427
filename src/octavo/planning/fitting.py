"""Costs fitted to measured steps: least squares of relative errors, without negative prices.

The curve over the number of tokens is the sum of hat functions, one at each knot, so that everything is linear
in the unknowns.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ConfigError
from octavo.planning.costs import Fitted
from octavo.planning.work import StepWork

KNOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
MIN_STEPS = 20
ROUNDS = 6
ERROR_IN_FULL = 0.05
"""Relative errors up to here count by their square, larger ones by their size only."""


Step = tuple[StepWork, float]
"""What a step had to do, and the seconds that it took."""


def fit_costs(steps: Sequence[Step], wakes: Sequence[Step] = (), machine: str = "") -> Fitted:
    """The costs that come nearest to these steps; `wakes` are first steps after a time of nothing to do.

    Raises ConfigError for too few steps.
    """
    if len(steps) < MIN_STEPS:
        raise ConfigError(f"a fit needs at least {MIN_STEPS} measured steps; given: {len(steps)}")
    tokens = np.array([work.num_tokens for work, _ in steps], float)
    seconds = np.array([s for _, s in steps])
    knots = _knots_between(int(tokens.min()), int(tokens.max()))
    columns = [_hat(tokens, knots, i) for i in range(len(knots))]
    rows = np.array([[w.num_rows, w.num_keys, w.num_pairs] for w, _ in steps], float)
    prices = _robust(np.column_stack([*columns, rows]) / seconds[:, None])
    curve = tuple(float(p) for p in prices[: len(knots)])
    row_s, key_s, pair_s = (float(p) for p in prices[len(knots) :])
    fitted = Fitted(knots, curve, row_s, key_s, pair_s, machine)
    wake_s = median(s - fitted.seconds(work) for work, s in wakes) if wakes else 0.0
    return replace(fitted, wake_s=max(0.0, wake_s))


def relative_errors(costs: Fitted, steps: Sequence[Step]) -> list[float]:
    """(fitted - measured) / measured of each step."""
    return [costs.seconds(work) / seconds - 1 for work, seconds in steps]


def _knots_between(low: int, high: int) -> tuple[int, ...]:
    inner = [knot for knot in KNOTS if low < knot < high]
    return tuple(sorted({low, *inner, high}))


def _hat(tokens: NDArray[np.float64], knots: tuple[int, ...], i: int) -> NDArray[np.float64]:
    values = np.zeros(len(knots))
    values[i] = 1.0
    return np.interp(tokens, knots, values)


def _robust(design: NDArray[np.float64]) -> NDArray[np.float64]:
    """Prices under which all rows come near 1; steps that something else disturbed count less (Huber, 1964)."""
    weights = np.ones(len(design))
    for _ in range(ROUNDS):
        prices = _non_negative(design * weights[:, None], weights)
        errors = np.abs(design @ prices - 1)
        weights = np.sqrt(np.minimum(1, ERROR_IN_FULL / np.maximum(errors, ERROR_IN_FULL)))
    return prices


def _non_negative(design: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares with prices from 0: Lawson and Hanson, Solving Least Squares Problems, 1974, chapter 23."""
    scale = np.linalg.norm(design, axis=0)
    scale[scale == 0] = 1.0
    matrix = design / scale
    price = np.zeros(matrix.shape[1])
    free = np.zeros(matrix.shape[1], bool)
    for _ in range(3 * matrix.shape[1]):
        gain = matrix.T @ (wanted - matrix @ price)
        gain[free] = -np.inf
        if free.all() or gain.max() <= 1e-9 * len(wanted):
            break
        free[int(np.argmax(gain))] = True
        price = _on_free(matrix, wanted, price, free)
    return np.asarray(price / scale)


def _on_free(
    matrix: NDArray[np.float64],
    wanted: NDArray[np.float64],
    price: NDArray[np.float64],
    free: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Move to the best prices of the free columns, and stop at 0 on the way: who gets there is free no longer."""
    while True:
        best = np.zeros_like(price)
        best[free] = np.linalg.lstsq(matrix[:, free], wanted, rcond=None)[0]
        low = free & (best <= 0)
        if not low.any():
            return best
        step = float(np.min(price[low] / (price[low] - best[low] + 1e-300)))
        price = price + step * (best - price)
        free &= price > 1e-12
        price[~free] = 0.0
