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
    """In a process that does nothing else: this one has other threads, and memory that they give back."""
    code = (
        "import sys; print(flush=True); sys.stdin.readline(); held = b'x' * (64 << 20); print(flush=True); "
        "sys.stdin.readline()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        before = process_use(child.pid).pss_bytes
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        held = process_use(child.pid).pss_bytes - before
        child.stdin.close()
    assert held == pytest.approx(64 << 20, rel=0.1)


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
