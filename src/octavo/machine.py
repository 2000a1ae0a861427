"""What this process may use of the machine: cores and memory.

A container's limits are not in the affinity mask or in /proc/meminfo: they are read from the cgroups, version 1 and
2, of this process and all groups above it. Every function takes the `root` under which /proc and /sys lie.
"""

import logging
import math
import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import PlatformError

logger = logging.getLogger(__name__)

ROOT = Path("/")
ARCHITECTURES = ("x86_64", "aarch64")
"""As Linux names them."""
MIN_QUOTA_USE = 0.7
"""A quota of 1.5 CPUs: one thread would leave a third of it unused, two are throttled part of the time. The smaller
number is taken as long as it uses at least this share of the quota."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What this process may use. Memory in bytes."""

    cpu_model: str
    num_cpus: int
    """Logical CPUs in the affinity mask."""
    num_cores: int
    """Physical cores among them."""
    cpu_quota: float | None
    """CPUs' worth of time that the cgroups grant; None: no quota."""
    memory_total: int
    """The machine's memory, or the cgroup limit where that is lower."""
    memory_available: int
    """What can be allocated now without swapping or reaching a cgroup limit."""

    @property
    def num_threads(self) -> int:
        """Compute threads that this machine can keep busy, at least 1."""
        return usable_threads(self.num_cores, self.cpu_quota)


def check_platform(system: str | None = None, architecture: str | None = None) -> None:
    """Raise PlatformError on anything but Linux on x86-64 or AArch64."""
    system = platform.system() if system is None else system
    architecture = platform.machine() if architecture is None else architecture
    if system != "Linux" or architecture not in ARCHITECTURES:
        raise PlatformError(
            f"Octavo runs on Linux on x86-64 and AArch64; this is {system} {architecture}"
        )


def inspect_machine(root: Path = ROOT, affinity: frozenset[int] | None = None) -> Machine:
    """Read the limits that hold for this process; `affinity` are its logical CPUs (None: asks the system)."""
    cpus = frozenset(os.sched_getaffinity(0)) if affinity is None else affinity
    total, available = _read_meminfo(root)
    for limit, room in _memory_limits(root):
        total, available = min(total, limit), min(available, room)
    return Machine(
        cpu_model=_read_cpu_model(root),
        num_cpus=len(cpus),
        num_cores=max(1, len(cores_of(cpus, root))),
        cpu_quota=min(_cpu_quotas(root), default=None),
        memory_total=total,
        memory_available=max(0, available),
    )


def usable_threads(num_cores: int, quota: float | None) -> int:
    """Threads for `num_cores` physical cores under a quota of CPU time (see MIN_QUOTA_USE), at least 1."""
    if quota is None:
        return max(1, num_cores)
    whole = math.floor(quota)
    wanted = whole if whole >= MIN_QUOTA_USE * quota else math.ceil(quota)
    return max(1, min(num_cores, wanted))


def _read_cpu_model(root: Path) -> str:
    """The first processor stands for all. On AArch64 they have numbers, not names."""
    facts: dict[str, str] = {}
    for line in _read(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    if "CPU part" in facts:
        return f"implementer {facts.get('CPU implementer', 'unknown')}, part {facts['CPU part']}"
    return facts.get("model name", "unknown")


def _read_meminfo(root: Path) -> tuple[int, int]:
    kib: dict[str, int] = {}
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if value.split():
            kib[name] = int(value.split()[0])
    total = kib.get("MemTotal")
    if total is None:
        raise PlatformError(f"{root / 'proc/meminfo'} does not say how much memory there is")
    return total * 1024, kib.get("MemAvailable", kib.get("MemFree", total)) * 1024


def allowed_cores(root: Path = ROOT) -> list[tuple[int, ...]]:
    """The physical cores that this process may use, each as its logical CPUs."""
    return cores_of(os.sched_getaffinity(0), root)


def cores_of(cpus: Iterable[int], root: Path = ROOT) -> list[tuple[int, ...]]:
    """The physical cores among logical CPUs, each as its CPUs; where the topology is hidden each CPU counts as a core."""
    cores: dict[str, list[int]] = {}
    for cpu in sorted(cpus):
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        name = _read(topology / "thread_siblings_list").strip() or f"cpu{cpu}"
        cores.setdefault(name, []).append(cpu)
    return [tuple(core) for core in cores.values()]


def _cpu_quotas(root: Path) -> Iterator[float]:
    """CPUs' worth of time granted by each cgroup that sets a quota."""
    for folder in _cgroup_folders(root, "cpu"):
        quota, _, period = _read(folder / "cpu.max").strip().partition(" ")  # version 2
        if not period:
            quota = _read(folder / "cpu.cfs_quota_us").strip()  # version 1
            period = _read(folder / "cpu.cfs_period_us").strip()
        if quota.isdigit() and period.isdigit() and int(quota) > 0 and int(period) > 0:
            yield int(quota) / int(period)


def _memory_limits(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, room below it) of each cgroup that limits memory.

    Page cache that the kernel would drop first counts as room: a memory-mapped model has just filled it.
    """
    for folder in _cgroup_folders(root, "memory"):
        limit = _read(folder / "memory.max").strip()  # version 2; "max" is none
        used = _read(folder / "memory.current").strip()
        if not limit:
            limit = _read(folder / "memory.limit_in_bytes").strip()  # version 1; 2^63 is none
            used = _read(folder / "memory.usage_in_bytes").strip()
        if limit.isdigit() and used.isdigit():
            yield int(limit), int(limit) - int(used) + _droppable_cache(folder)


def _droppable_cache(folder: Path) -> int:
    stat = dict(
        line.split(maxsplit=1) for line in _read(folder / "memory.stat").splitlines() if " " in line
    )
    return int(stat.get("total_inactive_file", stat.get("inactive_file", "0")))


def _cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """This process's cgroup folders for a controller, innermost first, up to the mount point.

    Inside a container the path in /proc/self/cgroup may be the host's, which is not there: the folders above it are.
    """
    mounts = list(_cgroup_mounts(root))
    for line in _read(root / "proc/self/cgroup").splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        unified = hierarchy == "0" and not controllers
        if not unified and controller not in controllers.split(","):
            continue
        for mount_unified, mount_controllers, mount_root, mount_point in mounts:
            if unified != mount_unified or not (unified or controller in mount_controllers):
                continue
            inside = path[len(mount_root) :] if path.startswith(mount_root) else path
            top = root / mount_point.lstrip("/")
            folder = top / inside.lstrip("/")
            while folder != top and top in folder.parents:
                yield folder
                folder = folder.parent
            yield top


def _cgroup_mounts(root: Path) -> Iterator[tuple[bool, frozenset[str], str, str]]:
    """(is version 2, controllers, path within the hierarchy, mount point) of each cgroup mount."""
    for line in _read(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        mount, options = left.split(), right.split()
        if len(mount) >= 5 and len(options) >= 3 and options[0] in ("cgroup", "cgroup2"):
            mount_root = mount[3] if mount[3] != "/" else ""
            yield options[0] == "cgroup2", frozenset(options[2].split(",")), mount_root, mount[4]


def _read(path: Path) -> str:
    """The file's text; empty if it is not there or may not be read (containers hide parts of /proc and /sys)."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        logger.debug("cannot read %s: %s", path, error)
        return ""


def transparent_huge_pages(root: Path = ROOT) -> str | None:
    """always, madvise or never; None where the system does not say. With `never` large weights are read slower."""
    text = _read(root / "sys/kernel/mm/transparent_hugepage/enabled")
    _, _, rest = text.partition("[")
    return rest.partition("]")[0] or None


def gpu_devices(root: Path = ROOT) -> list[str]:
    """Device files of NVIDIA and AMD GPUs that this process can see."""
    names = [path.name for path in (root / "dev").glob("nvidia[0-9]*")]
    if (root / "dev/kfd").exists():
        names.append("kfd")
    return sorted(names)
