"""Blocks that admission leaves free, so that who is let in is not at once preempted again."""

SHARE = 8
"""At most one block in so many is left free."""
CALM_STEPS = 32
"""Steps without preemption after which half as many are."""


class Watermark:
    """Rises with every preemption for growth, and sinks while there is none."""

    def __init__(self, num_blocks: int) -> None:
        self._most = num_blocks // SHARE
        self._calm = 0
        self.num_blocks = 0
        """To be left free by who is let in beside others."""

    def rise(self, num_running: int) -> None:
        """Running sequences had to give way: each of those that stay grows, so leave a block for each, and more if that was not enough."""
        self._calm = 0
        self.num_blocks = min(self._most, max(num_running, 2 * self.num_blocks))

    def step(self) -> None:
        """A step is planned."""
        if self.num_blocks:
            self._calm += 1
            if self._calm == CALM_STEPS:
                self._calm = 0
                self.num_blocks //= 2
