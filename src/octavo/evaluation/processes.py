"""CPU time and memory of running processes, from /proc."""

import os
from dataclasses import dataclass
from pathlib import Path

KIB = 1024
PROC = Path("/proc")
_UTIME, _STIME = 11, 12
"""Places in /proc/PID/stat, counted from the state, which follows the name in brackets."""


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What a process has used so far."""

    pid: int
    cpu_s: float
    """User and system time of all its threads; ended children do not count."""
    pss_bytes: int
    """Memory, pages shared with other processes divided among them."""


def process_use(pid: int, proc: Path = PROC) -> ProcessUse:
    """Read one process. Raises OSError if there is none."""
    stat = (proc / str(pid) / "stat").read_text()
    fields = stat.rpartition(")")[2].split()
    ticks = int(fields[_UTIME]) + int(fields[_STIME])
    return ProcessUse(pid, ticks / os.sysconf("SC_CLK_TCK"), _pss_bytes(pid, proc))


def descendants(pid: int, proc: Path = PROC) -> list[int]:
    """The ids of a process's children, their children and so on; none of one that has ended."""
    found: list[int] = []
    for children in sorted((proc / str(pid) / "task").glob("*/children")):
        try:
            of_thread = children.read_text().split()
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            continue
        for child in map(int, of_thread):
            found += [child, *descendants(child, proc)]
    return found


def runs_module(pid: int, module: str, proc: Path = PROC) -> bool:
    """Whether a process was started as `python -m module`. Raises OSError if there is none."""
    return module in (proc / str(pid) / "cmdline").read_text().split("\0")


def _pss_bytes(pid: int, proc: Path) -> int:
    for line in (proc / str(pid) / "smaps_rollup").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "Pss":
            return int(value.split()[0]) * KIB
    raise OSError(f"no Pss in smaps_rollup of process {pid}")
