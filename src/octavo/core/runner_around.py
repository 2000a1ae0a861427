"""A runner that has another one compute."""

from octavo.core.step import Runner, StepPlan, StepResult


class RunnerAround:
    """Gives everything to the runner inside; what is derived from it adds something to the steps."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @property
    def num_blocks(self) -> int:
        """N: blocks in the pool."""
        return self._runner.num_blocks

    @property
    def block_size(self) -> int:
        """B: tokens in a block."""
        return self._runner.block_size

    def run(self, plan: StepPlan) -> StepResult:
        """As the runner inside."""
        return self._runner.run(plan)

    def close(self) -> None:
        """As the runner inside."""
        self._runner.close()
