import os
import subprocess
import sys
import time

import pytest

from octavo.evaluation.processes import descendants, process_use


def test_cpu_time_is_what_the_process_itself_says() -> None:
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert process_use(os.getpid()).cpu_s == pytest.approx(time.process_time(), abs=0.1)


def test_memory_is_counted_once() -> None:
    before = process_use(os.getpid()).pss_bytes
    held = bytearray(64 << 20)
    held[::4096] = b"x" * len(held[::4096])
    assert process_use(os.getpid()).pss_bytes - before == pytest.approx(64 << 20, rel=0.1)


def test_children_of_children_are_found() -> None:
    code = (
        "import subprocess, sys; c = subprocess.Popen(['sleep', '60']); print(c.pid, flush=True); "
        "sys.stdin.read(); c.kill(); c.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert {child.pid, grandchild} <= set(descendants(os.getpid()))
        assert descendants(child.pid) == [grandchild]


def test_a_process_that_is_gone() -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    with pytest.raises(OSError, match=str(child.pid)):
        process_use(child.pid)
