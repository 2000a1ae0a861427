"""The main loop of the engine process: messages in, steps, messages out."""

import gc
import logging
import time

from octavo.engine.channel import Channel
from octavo.engine.loop import Engine
from octavo.engine.messages import (
    Abort,
    AbortSequence,
    Drain,
    EngineFailed,
    RequestEnd,
    Submit,
    ToEngine,
)
from octavo.engine.pulse import Pulse
from octavo.errors import EngineDeadError, OctavoError, UserError

logger = logging.getLogger(__name__)


GC_ALLOCATIONS = 100_000
"""Objects that come to live before the collector looks for cycles. A step makes two for each sequence and no cycles:
the default of 700 has it walk through them several times a step, which took an eighth of the time between steps."""


def spare_collector() -> None:
    """Once all is loaded: what is there lives to the end and need not be walked again, what comes is short-lived."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS)


class EngineService:
    """Serves one engine over one channel until it has drained or failed."""

    def __init__(self, engine: Engine, channel: Channel, pulse: Pulse) -> None:
        self._engine = engine
        self._channel = channel
        self._pulse = pulse
        self._drain_deadline: float | None = None

    def run(self) -> int:
        """Serve. Returns the exit code of the process: 0 after a drain, 1 after a runner that failed.

        Without work the thread is blocked in the socket; with work it takes what has come between two steps.
        """
        spare_collector()
        while self._drain_deadline is None or self._engine.has_work:
            self._receive()
            if self._drain_deadline is not None and time.monotonic() >= self._drain_deadline:
                self._channel.send(self._engine.abort_all())
            if self._engine.has_work and not self._step():
                return 1
        logger.info("drained")
        return 0

    def _receive(self) -> None:
        refused: list[RequestEnd] = []
        wait = not (self._engine.has_work or self._engine.use_idle_time())
        for message in self._channel.receive(wait=wait):
            end = self._handle(message)
            if end is not None:
                refused.append(end)
        if refused:
            self._channel.send(self._engine.report(ends=refused))

    def _handle(self, message: ToEngine) -> RequestEnd | None:
        """Do what a message says. Returns the end of a request that was refused."""
        if isinstance(message, Submit):
            try:
                if self._drain_deadline is not None:
                    raise EngineDeadError("the engine is shutting down and takes no new requests")
                self._engine.submit(message)
            except OctavoError as error:
                num_tokens = len(message.token_ids) // 4
                return RequestEnd(
                    message.request_id,
                    num_tokens,
                    error=str(error),
                    error_type=type(error).__name__,
                    error_parameter=error.parameter if isinstance(error, UserError) else None,
                )
        elif isinstance(message, Abort):
            self._channel.send(self._engine.abort(message.request_ids))
        elif isinstance(message, AbortSequence):
            self._channel.send(self._engine.abort_sequence(message.request_id, message.index))
        elif isinstance(message, Drain):
            self._drain_deadline = time.monotonic() + message.timeout_s
        return None

    def _step(self) -> bool:
        """One step. False: the runner has failed, which has been reported."""
        self._pulse.enter_step()
        try:
            outputs = self._engine.step()
        except Exception as error:  # the boundary of the process: the front end reports it
            logger.exception("a step has failed")
            reason = f"the engine has failed: {type(error).__name__}: {error}"
            self._channel.send(self._engine.fail(reason))
            self._channel.send(EngineFailed(EngineDeadError.__name__, reason))
            return False
        self._pulse.leave_step()
        self._channel.send(outputs)
        return True
