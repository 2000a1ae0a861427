"""An engine process that another process has started, for a client that does not own it."""

import os
import select
from dataclasses import dataclass

from octavo.engine.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class AttachedEngine:
    """As `EngineProcess`, without the right to end it."""

    pid: int
    endpoint: Endpoint
    client_index: int

    @property
    def is_own(self) -> bool:
        """Its parent ends it."""
        return False

    def wait(self) -> None:
        """Wait until the process has ended. Only its parent learns with what code."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll()
        finally:
            os.close(descriptor)

    def stop(self) -> None:
        """Not this client's to do."""

    def connected(self) -> None:
        """The folder stays: other clients may still come."""

    def kill(self) -> None:
        """Not this client's to do."""
