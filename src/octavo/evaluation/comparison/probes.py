"""What the machine gave before and after a leg: bandwidth, the way between its cores, and whose the time was."""

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from octavo import _C

BANDWIDTH_BYTES = 256 << 20
"""Beyond every cache."""
BANDWIDTH_LOOKS, BARRIER_LOOKS = 12, 30
LONGEST_LOOKS_S = 1.0
"""Threads that wait for each other by spinning take as long as others let them: a busy machine gets fewer looks."""
PROC_STAT = Path("/proc/stat")
_STEAL = 7
"""Place in the line of all CPUs, after its name: user nice system idle iowait irq softirq steal."""
_WORK = (0, 1, 2)


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the machine."""

    bandwidth: float
    """Bytes per second that all threads read."""
    barrier_ns: float
    """One barrier of all threads."""


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds of all CPUs together since the machine started."""

    whole: float
    worked: float
    """By anybody."""
    stolen: float
    """By the machine beneath this one."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under which a leg ran."""

    before: Reading
    after: Reading
    steal: float
    """Share of the CPU time that the machine beneath took."""
    others: float
    """Share of the CPU time that other processes of this machine took."""


def take_reading(num_threads: int) -> Reading:
    """Measure now, about a second: the best of many looks, since what passes by is not the machine."""
    bandwidths = _looks(lambda: _C.read_bandwidth(BANDWIDTH_BYTES, num_threads), BANDWIDTH_LOOKS)
    barriers = _looks(lambda: _C.barrier_latency(num_threads), BARRIER_LOOKS)
    return Reading(max(bandwidths), min(barriers) * 1e9)


def _looks(look: Callable[[], float], most: int) -> list[float]:
    """At least one."""
    end = time.perf_counter() + LONGEST_LOOKS_S
    values = [look()]
    while len(values) < most and time.perf_counter() < end:
        values.append(look())
    return values


def cpu_times(stat: Path = PROC_STAT) -> CpuTimes:
    """Read the line of all CPUs."""
    fields = stat.read_text().splitlines()[0].split()[1:9]
    ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in fields]
    return CpuTimes(sum(ticks), sum(ticks[i] for i in _WORK), ticks[_STEAL])


class Watch:
    """Looks at the machine before and after something, which this process and its children do."""

    def __init__(
        self, read: Callable[[], Reading], times: Callable[[], CpuTimes] = cpu_times
    ) -> None:
        """`read` is called now and once more at the end."""
        self._read = read
        self._times = times
        self._before = read()
        self._own = _own_cpu_s()
        self._cpu = times()

    def end(self) -> Conditions:
        """What it was like. Children must have been waited for."""
        cpu, own = self._times(), _own_cpu_s() - self._own
        whole = max(cpu.whole - self._cpu.whole, 1e-9)
        others = (cpu.worked - self._cpu.worked - own) / whole
        steal = (cpu.stolen - self._cpu.stolen) / whole
        return Conditions(self._before, self._read(), steal, max(0.0, others))


def _own_cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
