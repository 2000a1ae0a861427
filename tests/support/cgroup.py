"""A real control group with a CPU quota, for processes of a test. Version 1 or 2, where the system lets one be made."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PERIOD_US = 100_000


@contextmanager
def cpu_quota(cpus: float) -> Iterator[list[str]]:
    """The beginning of a command line whose command gets so many CPUs' worth of time. Skips the test where it cannot."""
    folder = _own_group() / f"octavo-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
        try:
            _set_quota(folder, int(cpus * PERIOD_US))
        except OSError:
            folder.rmdir()
            raise
    except OSError as error:
        pytest.skip(f"no group with a CPU quota can be made here: {error}")
    try:
        yield ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(folder / "cgroup.procs")]
    finally:
        folder.rmdir()


def num_throttled(prefix: list[str]) -> int:
    """Periods in which the group of `cpu_quota` had used up its time."""
    stat = Path(prefix[-1]).with_name("cpu.stat").read_text().split()
    return int(stat[stat.index("nr_throttled") + 1])


def _set_quota(folder: Path, quota_us: int) -> None:
    if (folder / "cpu.cfs_quota_us").exists():
        (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
        return
    file = os.open(
        folder / "cpu.max", os.O_WRONLY
    )  # is not there unless the group above hands it on
    try:
        os.write(file, f"{quota_us} {PERIOD_US}".encode())
    finally:
        os.close(file)


def _own_group() -> Path:
    """The folder of this process's group in the hierarchy that has the CPU controller."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        kind = "cgroup" if "cpu" in controllers.split(",") else "" if controllers else "cgroup2"
        for mount in mounts:
            options = mount[mount.index("-") + 1 :]
            if options[0] != kind or (controllers and "cpu" not in options[2].split(",")):
                continue
            folder = Path(mount[4]) / path.removeprefix(mount[3]).lstrip("/")
            if folder.is_dir():
                return folder
    pytest.skip("there is no control group of this process to be seen")


def can_unshare() -> bool:
    """Whether this process may hide parts of the file system from a child."""
    command = ["unshare", "--map-root-user", "--mount", "true"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
