"""How far something long is, told to whoever wants to show it."""

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, float], None]
"""Called with what is going on and how much of it is done, 0 to 1."""


def silent(_stage: str, _fraction: float) -> None:
    """Show nothing."""
