"""The progress bar of `LLM.generate`."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol


class BatchProgress(Protocol):
    """Told how far a batch is."""

    def __enter__(self) -> "BatchProgress": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def finish_request(self, num_prompt_tokens: int, num_output_tokens: int, /) -> None:
        """One more request has ended."""


class NoProgress:
    """Shows nothing."""

    def __enter__(self) -> "NoProgress":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def finish_request(self, *_: int) -> None:
        """Nothing is shown."""


class RichProgress:
    """A bar on standard error with the speed of prompt and output tokens; nothing where that is not a terminal."""

    def __init__(self, num_requests: int) -> None:
        # Late: a quarter of a second that a quiet caller does not want to pay.
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("Processed prompts"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[speed]}"),
            console=console,
            disable=not (console.is_terminal or console.is_jupyter),
        )
        self._task = self._bar.add_task("", total=num_requests, speed="")
        self._start = time.monotonic()
        self._num_prompt_tokens = 0
        self._num_output_tokens = 0

    def __enter__(self) -> "RichProgress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def finish_request(self, num_prompt_tokens: int, num_output_tokens: int, /) -> None:
        """One more request has ended."""
        self._num_prompt_tokens += num_prompt_tokens
        self._num_output_tokens += num_output_tokens
        seconds = max(1e-9, time.monotonic() - self._start)
        speed = (
            f"{self._num_prompt_tokens / seconds:.0f} prompt tokens/s, "
            f"{self._num_output_tokens / seconds:.0f} output tokens/s"
        )
        self._bar.update(self._task, advance=1, speed=speed)


class TqdmProgress:
    """A bar that the caller makes, with tqdm's interface."""

    def __init__(self, make_bar: Callable[..., Any], num_requests: int) -> None:
        self._bar = make_bar(total=num_requests, desc="Processed prompts")

    def __enter__(self) -> "TqdmProgress":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def finish_request(self, *_: int) -> None:
        """One more request has ended."""
        self._bar.update(1)


def make_progress(use_tqdm: bool | Callable[..., Any], num_requests: int) -> BatchProgress:
    """What vLLM's `use_tqdm` asks for."""
    if callable(use_tqdm):
        return TqdmProgress(use_tqdm, num_requests)
    return RichProgress(num_requests) if use_tqdm else NoProgress()
