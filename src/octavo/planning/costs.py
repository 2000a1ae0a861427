"""How long a step takes: from the numbers of hardware and model, or fitted to steps that were measured."""

import json
from bisect import bisect_right
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from octavo.errors import ConfigError
from octavo.planning.devices import Device
from octavo.planning.model_numbers import ModelNumbers
from octavo.planning.work import StepWork

COMPUTE_EFFICIENCY = 0.5
"""Share of the peak that matrix products reach."""
MEMORY_EFFICIENCY = 0.9
"""Share of the peak bandwidth that reading weights and pages reaches."""
STEP_OVERHEAD_S = 0.003
"""What a step takes besides: scheduling, launching kernels, drawing tokens."""


class CostModel(Protocol):
    """Gives a step its time."""

    @property
    def wake_s(self) -> float:
        """What the first step takes besides when there was nothing to do before."""
        ...

    def seconds(self, work: StepWork) -> float:
        """How long a step of this size takes."""
        ...


@dataclass(frozen=True, slots=True)
class Roofline:
    """Weights are read and multiplied at once, at the slower of both; keys and values likewise; plus an overhead.

    Williams et al., Roofline, CACM 52(4), 2009. Nothing is fitted: the efficiencies are assumptions.
    """

    model: ModelNumbers
    bytes_per_s: float
    """What reading reaches."""
    operations_per_s: float
    """What computing reaches."""
    overhead_s: float = STEP_OVERHEAD_S
    wake_s: float = 0.0
    """What the first step takes besides when there was nothing to do before."""

    @classmethod
    def of(cls, model: ModelNumbers, device: Device, num_devices: int = 1) -> "Roofline":
        """At the usual efficiencies, on devices that share the work evenly."""
        return cls(
            model,
            device.bytes_per_s * MEMORY_EFFICIENCY * num_devices,
            device.operations_per_s * COMPUTE_EFFICIENCY * num_devices,
        )

    def seconds(self, work: StepWork) -> float:
        """How long a step of this size takes."""
        model = self.model
        weights = 2 * (model.token_weights * work.num_tokens + model.row_weights * work.num_rows)
        attention = model.pair_operations * work.num_pairs
        return (
            self.overhead_s
            + max(model.weight_bytes / self.bytes_per_s, weights / self.operations_per_s)
            + max(
                model.key_bytes * work.num_keys / self.bytes_per_s,
                attention / self.operations_per_s,
            )
        )


@dataclass(frozen=True, slots=True)
class Fitted:
    """Measured steps, summed up: a curve over the number of tokens, and a price for all else. `fitting` makes it."""

    knots: tuple[int, ...]
    """Numbers of tokens, ascending."""
    knot_seconds: tuple[float, ...]
    """What a step of so many tokens takes without attention and head; straight lines in between and beyond."""
    row_s: float
    key_s: float
    pair_s: float
    machine: str = ""
    """Where it was measured, for people."""
    wake_s: float = 0.0
    """What the first step takes besides when there was nothing to do before: cores sleep, caches are lost."""

    def seconds(self, work: StepWork) -> float:
        """How long a step of this size takes."""
        return (
            self._tokens(work.num_tokens)
            + self.row_s * work.num_rows
            + self.key_s * work.num_keys
            + self.pair_s * work.num_pairs
        )

    def _tokens(self, num_tokens: int) -> float:
        knots, values = self.knots, self.knot_seconds
        if len(knots) == 1:
            return values[0]
        i = min(max(bisect_right(knots, num_tokens), 1), len(knots) - 1)
        slope = (values[i] - values[i - 1]) / (knots[i] - knots[i - 1])
        return max(0.0, values[i - 1] + slope * (num_tokens - knots[i - 1]))


def write_costs(costs: Fitted, path: Path) -> None:
    """Keep fitted costs in a file. Raises OSError."""
    path.write_text(json.dumps(asdict(costs), indent=1) + "\n")


def read_costs(path: Path) -> Fitted:
    """Costs that `write_costs` has kept. Raises ConfigError."""
    try:
        value: dict[str, Any] = json.loads(path.read_text())
        knots = tuple(int(n) for n in value.pop("knots"))
        seconds = tuple(float(s) for s in value.pop("knot_seconds"))
        if not knots or len(knots) != len(seconds):
            raise ValueError("knots and knot_seconds must be of one length, from 1")
        return Fitted(knots, seconds, **value)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path}: no costs as `octavo bench profile` writes them: {error}"
        ) from error
