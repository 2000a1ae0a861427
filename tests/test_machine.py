"""Limits of a container, read from copies of /proc and /sys."""

import os
from pathlib import Path

import pytest

from octavo.errors import PlatformError
from octavo.machine import (
    check_platform,
    gpu_devices,
    inspect_machine,
    transparent_huge_pages,
    usable_threads,
)

GIB = 1024**3
V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw"
V1_MOUNTS = "\n".join(
    f"{i} 23 0:{i} / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}"
    for i, name in enumerate(("cpu,cpuacct", "memory"), start=40)
)


def make_root(
    root: Path, files: dict[str, str], *, mounts: str, cgroup: str, cpus: int = 8, smt: int = 1
) -> Path:
    """A small copy of /proc and /sys: 32 GiB, 24 of them available."""
    texts = {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Test CPU\nflags\t\t: fpu avx2 fma\n\n"
        "processor\t: 1\nmodel name\t: Other CPU\nflags\t\t: fpu\n",
        "proc/meminfo": f"MemTotal: {32 * 1024**2} kB\nMemFree: 1 kB\nMemAvailable: {24 * 1024**2} kB\n",
        "proc/self/mountinfo": mounts + "\n",
        "proc/self/cgroup": cgroup + "\n",
    }
    for cpu in range(cpus):
        first = cpu - cpu % smt
        siblings = ",".join(str(first + i) for i in range(smt))
        texts[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = siblings + "\n"
    for name, text in (texts | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_machine_that_runs_the_tests() -> None:
    machine = inspect_machine()
    assert machine.num_cpus == len(os.sched_getaffinity(0))
    assert 1 <= machine.num_cores <= machine.num_cpus
    assert 1 <= machine.num_threads <= machine.num_cpus
    assert 0 < machine.memory_available <= machine.memory_total


def test_without_limits_the_machine_is_what_proc_says(tmp_path: Path) -> None:
    root = make_root(tmp_path, {}, mounts=V2_MOUNT, cgroup="0::/")
    machine = inspect_machine(root, frozenset(range(8)))
    assert machine.cpu_model == "Test CPU"
    assert (machine.num_cpus, machine.num_cores, machine.cpu_quota) == (8, 8, None)
    assert (machine.memory_total, machine.memory_available) == (32 * GIB, 24 * GIB)


@pytest.mark.parametrize(
    ("affinity", "cores"), [({2, 3}, 1), ({4, 7}, 2), ({5}, 1), (set(range(8)), 4)]
)
def test_hardware_threads_of_one_core_count_once(
    tmp_path: Path, affinity: set[int], cores: int
) -> None:
    root = make_root(tmp_path, {}, mounts=V2_MOUNT, cgroup="0::/", smt=2)
    machine = inspect_machine(root, frozenset(affinity))
    assert (machine.num_cpus, machine.num_cores, machine.num_threads) == (
        len(affinity),
        cores,
        cores,
    )


def test_a_hidden_topology_counts_cpus(tmp_path: Path) -> None:
    root = make_root(tmp_path, {}, mounts=V2_MOUNT, cgroup="0::/", cpus=0)
    assert inspect_machine(root, frozenset({2, 5})).num_cores == 2


def test_version_2_takes_the_strictest_group_above_the_process(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
        "sys/fs/cgroup/a/cpu.max": "250000 100000\n",
        "sys/fs/cgroup/a/b/memory.max": f"{8 * GIB}\n",
        "sys/fs/cgroup/a/b/memory.current": f"{3 * GIB}\n",
        "sys/fs/cgroup/a/b/memory.stat": f"anon 5\ninactive_file {GIB}\n",
        "sys/fs/cgroup/a/memory.max": "max\n",
        "sys/fs/cgroup/a/memory.current": "77\n",
    }
    root = make_root(tmp_path, files, mounts=V2_MOUNT, cgroup="0::/a/b")
    machine = inspect_machine(root, frozenset(range(8)))
    assert machine.cpu_quota == 2.5
    assert machine.num_threads == 2
    assert (machine.memory_total, machine.memory_available) == (8 * GIB, 6 * GIB)


def test_version_1_and_a_host_path_that_the_container_cannot_see(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4 * GIB}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
        "sys/fs/cgroup/memory/memory.stat": f"inactive_file 9\ntotal_inactive_file {GIB // 2}\n",
    }
    cgroup = "9:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/"
    root = make_root(tmp_path, files, mounts=V1_MOUNTS, cgroup=cgroup)
    machine = inspect_machine(root, frozenset(range(8)))
    assert machine.cpu_quota == 1.5
    assert machine.num_threads == 2
    assert (machine.memory_total, machine.memory_available) == (4 * GIB, 3 * GIB + GIB // 2)


def test_version_1_without_limits(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
    }
    root = make_root(tmp_path, files, mounts=V1_MOUNTS, cgroup="9:memory:/\n2:cpu,cpuacct:/")
    machine = inspect_machine(root, frozenset({0}))
    assert machine.cpu_quota is None
    assert machine.memory_available == 24 * GIB


def test_a_mount_that_shows_only_the_own_group(tmp_path: Path) -> None:
    mounts = "31 23 0:28 /kubepods/pod1 /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw"
    files = {"sys/fs/cgroup/inner/cpu.max": "300000 100000\n"}
    root = make_root(tmp_path, files, mounts=mounts, cgroup="0::/kubepods/pod1/inner")
    assert inspect_machine(root, frozenset(range(8))).cpu_quota == 3.0


def test_processors_of_aarch64_are_named_by_their_numbers(tmp_path: Path) -> None:
    cpuinfo = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n\nprocessor\t: 1\nCPU part\t: 0xd4f\n"
    root = make_root(tmp_path, {"proc/cpuinfo": cpuinfo}, mounts=V2_MOUNT, cgroup="0::/")
    assert inspect_machine(root, frozenset(range(8))).cpu_model == "implementer 0x41, part 0xd40"


@pytest.mark.parametrize(
    ("cores", "quota", "threads"),
    [(8, None, 8), (8, 0.2, 1), (8, 1.0, 1), (8, 1.2, 1), (8, 1.5, 2), (8, 2.5, 2), (2, 7.9, 2), (8, 3.9, 3)],
)  # fmt: skip
def test_threads_under_a_quota(cores: int, quota: float | None, threads: int) -> None:
    assert usable_threads(cores, quota) == threads


@pytest.mark.parametrize(
    ("system", "architecture"), [("Darwin", "arm64"), ("Linux", "riscv64"), ("Windows", "AMD64")]
)
def test_other_platforms_are_refused_by_name(system: str, architecture: str) -> None:
    with pytest.raises(PlatformError, match=f"{system} {architecture}"):
        check_platform(system, architecture)


def test_this_platform_is_accepted() -> None:
    check_platform("Linux", "x86_64")
    check_platform("Linux", "aarch64")
    check_platform()


@pytest.mark.parametrize(
    ("text", "mode"),
    [("always [madvise] never\n", "madvise"), ("[always] madvise never\n", "always"), ("", None)],
)
def test_huge_pages(tmp_path: Path, text: str, mode: str | None) -> None:
    folder = tmp_path / "sys/kernel/mm/transparent_hugepage"
    folder.mkdir(parents=True)
    (folder / "enabled").write_text(text)
    assert transparent_huge_pages(tmp_path) == mode


def test_gpus(tmp_path: Path) -> None:
    assert gpu_devices(tmp_path) == []
    (tmp_path / "dev").mkdir()
    for name in ("nvidia1", "nvidia0", "nvidiactl", "kfd", "null"):
        (tmp_path / "dev" / name).touch()
    assert gpu_devices(tmp_path) == ["kfd", "nvidia0", "nvidia1"]
