"""The `octavo` command in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping

TIMEOUT_S = 120.0


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, in which the same modules are found."""
    path = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": path, **(changes or {})}


def octavo(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout_s: float = TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "octavo", *arguments],
        env=environment(env),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
