"""Ctrl-C that waits for the end of a step: cut short, a step would leave the engine in between two states."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class DeferredInterrupt:
    """While it is entered, the handler of Ctrl-C runs in `check` only; usually it raises KeyboardInterrupt.

    Only the main thread gets signals: in another one this does nothing.
    """

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], Any] | None = None
        self._is_pending = False

    def __enter__(self) -> "DeferredInterrupt":
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._note)
            self._handler = handler
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        if error is None:
            self.check()

    def check(self) -> None:
        """Let the handler run now, if Ctrl-C was pressed."""
        if self._is_pending and self._handler is not None:
            self._is_pending = False
            self._handler(signal.SIGINT, None)

    def _note(self, *_: object) -> None:
        self._is_pending = True
