"""A program of a peer's, run to its end."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from octavo.evaluation.comparison.peers.peer import PeerError

TIMEOUT_S = 3600.0
"""llama.cpp is compiled within: ten minutes on two cores, more on busy ones."""
_SAID_LINES = 3


def run_program(
    name: str, command: Sequence[str | Path], variables: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run it, however it ends; `variables` go on top of ours. Raises PeerError if it cannot be run, or takes an hour."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
            env={**os.environ, **variables},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{name}: {error}") from error


def output_of(name: str, command: Sequence[str | Path], variables: Mapping[str, str]) -> str:
    """What a program prints. Raises PeerError also if it fails, with its last words."""
    done = run_program(name, command, variables)
    if done.returncode:
        raise PeerError(f"{name}: {last_words(done.stderr)}")
    return done.stdout


def last_words(text: str) -> str:
    """The end of what a program said."""
    return " | ".join(text.strip().splitlines()[-_SAID_LINES:]) or "it said nothing"
