"""What it costs to give up pages and to have them again, measured while the engine runs.

The core has no clock: whoever runs the steps and moves the pages tells how long it took.
"""

from dataclasses import dataclass

MIN_TOKENS = 32
"""Steps of fewer tokens say nothing of what a further token costs: they take the time that the weights take."""
MEMORY = 0.2
"""Weight of the newest measurement in the running mean."""


@dataclass(slots=True)
class RestoreCosts:
    """Seconds, as last measured. None: not yet."""

    token: float | None = None
    """To compute one token again, among others."""
    page_out: float | None = None
    """To write one page to the swap space."""
    page_in: float | None = None
    """To read one page back."""

    def learn_step(self, num_tokens: int, seconds: float) -> None:
        """A step of so many tokens took so long."""
        if num_tokens >= MIN_TOKENS:
            self.token = _mean(self.token, seconds / num_tokens)

    def learn_page_out(self, seconds: float) -> None:
        """A page was written."""
        self.page_out = _mean(self.page_out, seconds)

    def learn_page_in(self, seconds: float) -> None:
        """A page was read."""
        self.page_in = _mean(self.page_in, seconds)

    def computing(self, num_tokens: int) -> float | None:
        """Seconds to compute so many tokens again."""
        return None if self.token is None else num_tokens * self.token

    def swapping(self, num_out: int, num_in: int) -> float | None:
        """Seconds to write so many pages and to read so many back."""
        if self.page_out is None or self.page_in is None:
            return None
        return num_out * self.page_out + num_in * self.page_in


def _mean(known: float | None, measured: float) -> float:
    return measured if known is None else known + MEMORY * (measured - known)
