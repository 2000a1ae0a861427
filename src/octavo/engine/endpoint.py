"""Where one engine process and its clients, usually one front end, meet."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from octavo.engine.pulse import create_pulse_file
from octavo.errors import ConfigError

MAX_DIRECTORY_LEN = 90
"""The kernel allows 107 bytes in the path of a socket."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A private folder that holds the pulse of one engine process and a socket for each of its clients."""

    directory: Path

    @staticmethod
    def create() -> "Endpoint":
        """A new folder, readable by this user only. Raises ConfigError if there is nowhere to put it."""
        try:
            directory = Path(tempfile.mkdtemp(prefix="octavo-"))
            if len(str(directory)) > MAX_DIRECTORY_LEN:
                directory.rmdir()
                directory = Path(tempfile.mkdtemp(prefix="octavo-", dir="/tmp"))
            endpoint = Endpoint(directory)
            create_pulse_file(endpoint.pulse)
        except OSError as error:
            raise ConfigError(
                f"no place for the engine's socket: {error}; TMPDIR may name a folder that can be written"
            ) from error
        return endpoint

    def address(self, index: int = 0) -> str:
        """The socket of a client, as ZeroMQ names it."""
        return f"ipc://{self.directory / f'engine-{index}'}"

    @property
    def pulse(self) -> Path:
        """The file of the shared page."""
        return self.directory / "pulse"

    def remove(self) -> None:
        """Delete the folder; once both sides are connected neither needs it. Safe to call twice."""
        if self.directory.exists():
            for path in self.directory.iterdir():
                path.unlink(missing_ok=True)
            self.directory.rmdir()
