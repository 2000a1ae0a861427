"""Threads inside a container (known failure R57): affinity masks, CPU quotas, hidden /sys, other programs' settings."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from octavo.machine import inspect_machine
from support.cgroup import can_unshare, cpu_quota, num_throttled
from support.command import environment
from support.text_model import text_model_folder

CPUS = sorted(os.sched_getaffinity(0))

PROBE = """
import json, logging, os, sys, time
from octavo import LLM, SamplingParams
logging.basicConfig(level=logging.WARNING)
options, num_tokens = json.loads(sys.argv[2]), int(sys.argv[3])
def tasks():
    return os.listdir("/proc/self/task")
before = len(tasks())
llm = LLM(sys.argv[1], num_gpu_blocks_override=64, **options)
masks = {cpu for task in tasks() for cpu in os.sched_getaffinity(int(task))}
num_threads = 1 + len(tasks()) - before
params = SamplingParams(max_tokens=num_tokens, temperature=0, ignore_eos=True)
seconds = []
for _ in range(3):
    start = time.perf_counter()
    text = llm.generate("Gravity is", params, use_tqdm=False)[0].outputs[0].text
    seconds.append(time.perf_counter() - start)
print(json.dumps({"num_threads": num_threads, "cpus": sorted(masks), "text": text, "seconds": min(seconds)}))
"""


@dataclass(frozen=True)
class Probe:
    """What a process that has generated text says of itself."""

    num_threads: int
    cpus: list[int]
    """All that any of its threads may run on."""
    text: str
    seconds: float
    """Of the fastest of three runs."""
    log: str


def probe(
    *prefix: str,
    model: Path | None = None,
    num_tokens: int = 8,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> Probe:
    """Generate in a process of its own, started through `prefix`."""
    command: Sequence[str] = (
        *prefix, sys.executable, "-c", PROBE, str(model or text_model_folder()),
        json.dumps(options), str(num_tokens),
    )  # fmt: skip
    done = subprocess.run(
        command, env=environment(env), capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return Probe(**json.loads(done.stdout.splitlines()[-1]), log=done.stderr)


def cores_of(cpus: Sequence[int]) -> int:
    return inspect_machine(affinity=frozenset(cpus)).num_threads


@pytest.mark.parametrize("cpus", [CPUS, CPUS[:1], CPUS[-1:], CPUS[1:] or CPUS])
def test_an_affinity_mask_wherever_it_begins(cpus: list[int]) -> None:
    seen = probe("taskset", "-c", ",".join(map(str, cpus)))
    assert seen.cpus == cpus
    assert seen.num_threads == cores_of(cpus)


def test_text_does_not_depend_on_the_number_of_threads() -> None:
    one = probe(num_tokens=48, num_threads=1)
    assert one.num_threads == 1
    assert probe(num_tokens=48).text == one.text
    assert probe("taskset", "-c", str(CPUS[-1]), num_tokens=48).text == one.text


def test_more_threads_than_cores_are_a_warning() -> None:
    seen = probe(num_threads=4096)
    assert seen.num_threads == cores_of(CPUS)
    assert f"num_threads: {seen.num_threads} (given: 4096" in seen.log


def test_settings_of_openmp_change_nothing() -> None:
    """Octavo's threads are its own; OMP_NUM_THREADS is for other libraries of the process."""
    for value in ("1", "64", "nonsense"):
        seen = probe(
            env={"OMP_NUM_THREADS": value, "OMP_PROC_BIND": "true", "KMP_AFFINITY": "none"}
        )
        assert seen.num_threads == cores_of(CPUS)
        assert seen.cpus == CPUS


@pytest.mark.skipif(not can_unshare(), reason="this process may not make a mount namespace")
def test_without_sys() -> None:
    """The topology, NUMA nodes and control groups are out of sight: every CPU of the mask counts as a core."""
    hide = 'mount -t tmpfs none /sys && exec "$@"'
    seen = probe("unshare", "--map-root-user", "--mount", "sh", "-c", hide, "sh")
    assert seen.num_threads == len(CPUS)
    assert seen.cpus == CPUS


@pytest.mark.parametrize(("cpus", "most"), [(0.5, 1), (1.0, 1), (1.5, 2)])
def test_a_quota_bounds_the_threads(cpus: float, most: int) -> None:
    with cpu_quota(cpus) as prefix:
        seen = probe(*prefix)
        given = probe(*prefix, num_threads=64)
    assert seen.num_threads == given.num_threads == min(most, cores_of(CPUS))
    assert seen.cpus == CPUS


@pytest.mark.model
def test_speed_under_a_quota(smollm2_path: Path) -> None:
    """At least 70 % of what the share of the cores lets expect; both measured here, the best of three runs each."""
    cores = cores_of(CPUS)
    share = 0.75
    with cpu_quota(share * cores) as prefix:
        limited = probe(*prefix, model=smollm2_path, num_tokens=150)
        assert num_throttled(prefix) > 0 or limited.num_threads < cores
    free = probe(model=smollm2_path, num_tokens=150)
    assert limited.text == free.text
    assert free.seconds / limited.seconds > 0.7 * share
