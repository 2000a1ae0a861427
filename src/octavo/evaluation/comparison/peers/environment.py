"""A virtual environment for each system that is compared: none of them is a dependency of ours."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from octavo.checkpoints.named_models import cache_dir
from octavo.evaluation.comparison.peers.program import output_of
from octavo.progress import Progress

_LIST_VERSIONS = (
    "import importlib.metadata as m, json; "
    "print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"
)


@dataclass(frozen=True, slots=True)
class Environment:
    """Packages of fixed versions in a folder of the cache."""

    name: str
    requirements: tuple[str, ...]
    removed: tuple[str, ...] = ()
    """Packages that the requirements bring and that do not load beside them."""

    @property
    def folder(self) -> Path:
        """Where it lies; it may not exist."""
        return cache_dir() / "peers" / self.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def _stamp(self) -> Path:
        """Says what is installed, once all is."""
        return self.folder / "octavo-peer.json"

    def set_up(self, progress: Progress) -> Mapping[str, str]:
        """Install what is missing; the versions of what was asked for. Raises PeerError."""
        wanted = {"requirements": list(self.requirements), "removed": list(self.removed)}
        if not (self._stamp.is_file() and json.loads(self._stamp.read_text()) == wanted):
            progress(f"installing {self.name}", 0.0)
            if not self.python.exists():
                _call([sys.executable, "-m", "venv", str(self.folder)])
            pip = [str(self.python), "-m", "pip"]
            _call([*pip, "install", "--progress-bar", "off", *self.requirements])
            if self.removed:
                _call([*pip, "uninstall", "--yes", *self.removed])
            self._stamp.write_text(json.dumps(wanted))
            progress(f"installing {self.name}", 1.0)
        found: dict[str, str] = json.loads(_call([str(self.python), "-c", _LIST_VERSIONS]))
        names = [requirement.partition("==")[0].lower() for requirement in self.requirements]
        return {name: found[name] for name in names}


def _call(command: list[str]) -> str:
    """What a command prints. Raises PeerError."""
    return output_of(f"{' '.join(command[:4])} failed", command, {})
