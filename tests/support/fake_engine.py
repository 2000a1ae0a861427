"""An engine process over the fake runner, as its own main module: `start_engine_process(..., module=MODULE)`.

What the runner does is told by the prompts: see `Order`.
"""

import sys
import time
from enum import IntEnum

from octavo.core.step import Runner, StepPlan, StepResult
from octavo.engine.process import main
from support.fake_runner import FakeRunner

MODULE = "support.fake_engine"


class Order(IntEnum):
    """First token ids of prompts that change what a step with this sequence does."""

    RAISE = 40
    """The step raises."""
    BLOCK = 41
    """The step never ends."""
    DAWDLE = 42
    """Steps take 5 ms."""


class ObedientRunner(FakeRunner):
    """A fake runner that obeys the orders in prompts."""

    def run(self, plan: StepPlan) -> StepResult:
        """As the fake runner, after doing what is ordered."""
        orders = {sample.token_ids[0] for step in plan.seqs for sample in step.samples}
        if Order.RAISE in orders:
            raise RuntimeError("the step was told to fail")
        if Order.BLOCK in orders:
            time.sleep(3600)
        if Order.DAWDLE in orders:
            time.sleep(0.005)
        return super().run(plan)


def obedient(runner: Runner) -> Runner:
    """An obedient runner of the same size."""
    return ObedientRunner(runner.num_blocks, runner.block_size)


if __name__ == "__main__":
    sys.exit(main(obedient))
