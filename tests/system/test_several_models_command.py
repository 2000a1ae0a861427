"""`octavo serve` with two real models, as a user runs it: what is printed is what they take, and answers are their own."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from octavo import LLM, SamplingParams
from octavo.evaluation.processes import descendants, process_use
from support.command import environment, octavo

pytestmark = pytest.mark.model

MIB = 1 << 20
PROMPT = "The capital of France is"
FRONT_END = 160 * MIB
"""Most that the front end and its two tokenizers take, with what the engines need beside their ledgers."""
ENGINE = 100 * MIB
"""Most that an engine process takes beside its ledger."""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int, str]]:
    """Address, process id and what was printed."""
    path = tmp_path_factory.mktemp("several") / "models.yaml"
    path.write_text(
        """
        models:
          - {name: chat, model: smollm2, aliases: [default], kv-cache-memory-bytes: 64M}
          - {name: exact, model: smollm2, dtype: float32, kv-cache-memory-bytes: 32M, load: demand}
        """
    )
    arguments = ["--model-config", str(path), "--port", "0", "--max-model-len", "512"]
    with subprocess.Popen(
        [sys.executable, "-m", "octavo", "serve", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment(),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        printed = ""
        while "exact: sleeping" not in printed:
            line = process.stdout.readline()
            assert line, printed
            printed += line
        found = re.search(r"http://\S+", printed)
        assert found is not None
        yield found[0], process.pid, printed
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def sizes_of(name: str, printed: str) -> list[float]:
    """Bytes of a model's weights, scratch and pages, as its ledger says."""
    unit_bytes = {"MiB": MIB, "GiB": 1024 * MIB}
    ledger = printed.partition(f"{name}: ")[2]
    sizes = re.findall(r"(?:weights|scratch|at most) ([\d.]+) (MiB|GiB)", ledger)[:3]
    assert len(sizes) == 3
    return [float(number) * unit_bytes[unit] for number, unit in sizes]


def engines_of(pid: int) -> list[int]:
    """The engine processes, the oldest first."""

    def started_at(engine: int) -> int:
        return int(Path(f"/proc/{engine}/stat").read_text().rpartition(")")[2].split()[19])

    return sorted(descendants(pid), key=started_at)


def answer(url: str, model: str) -> str:
    body = {"model": model, "prompt": PROMPT, "max_tokens": 8, "temperature": 0}
    response = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
    assert response.headers["x-octavo-model"] == response.json()["model"]
    text: str = response.json()["choices"][0]["text"]
    return text


def test_each_answers_as_it_does_alone(started: tuple[str, int, str]) -> None:
    url, pid, _ = started
    assert len(descendants(pid)) == 1  # the other is not asked for yet
    answers = {name: answer(url, name) for name in ("chat", "default", "exact")}
    assert len(descendants(pid)) == 2
    params = SamplingParams(temperature=0, max_tokens=8)
    for dtype, names in (("auto", ("chat", "default")), ("float32", ("exact",))):
        llm = LLM("smollm2", dtype=dtype, max_model_len=512)
        (output,) = llm.generate([PROMPT], params)
        for name in names:
            assert answers[name] == output.outputs[0].text
        del llm


def test_they_take_what_was_printed(started: tuple[str, int, str]) -> None:
    url, pid, printed = started
    answer(url, "exact")
    in_use = sum(process_use(i).pss_bytes for i in (pid, *descendants(pid)))
    promised = {name: sum(sizes_of(name, printed)) for name in ("chat", "exact")}
    assert in_use < sum(promised.values()) + FRONT_END
    for name, engine in zip(promised, engines_of(pid), strict=True):
        assert process_use(engine).pss_bytes < promised[name] + ENGINE, name
    assert "chat: auto weights" in printed and "exact: float32 weights" in printed
    assert re.search(r"chat: .* 1 thread, CPUs \d|shared with others", printed)


def test_unloading_one_returns_what_it_took_and_nothing_of_the_other(
    started: tuple[str, int, str],
) -> None:
    url, pid, printed = started
    texts = {name: answer(url, name) for name in ("chat", "exact")}
    kept, leaving = engines_of(pid)
    weights, _, _ = sizes_of("exact", printed)
    before = sum(process_use(i).pss_bytes for i in (pid, kept, leaving))
    held = process_use(kept).pss_bytes
    httpx.post(f"{url}/v1/models/unload", json={"model": "exact"}, timeout=60).raise_for_status()
    assert engines_of(pid) == [kept]
    after = sum(process_use(i).pss_bytes for i in (pid, kept))
    assert before - after > weights, f"{before / MIB:.0f} MiB before, {after / MIB:.0f} after"
    assert abs(process_use(kept).pss_bytes - held) < ENGINE  # what both had shared is now its own
    assert answer(url, "chat") == texts["chat"]
    httpx.post(f"{url}/v1/models/load", json={"model": "exact"}, timeout=60).raise_for_status()
    assert answer(url, "exact") == texts["exact"]


def test_what_does_not_fit_is_refused_before_anything_starts(tmp_path: Path) -> None:
    result = octavo(
        *("serve", "--model", "a=smollm2", "--model", "b=smollm2", "--port", "0"),
        *("--kv-cache-memory-bytes", "9T"),
    )
    assert result.returncode == 2
    message = result.stderr.splitlines()[-1]
    assert "a: a pool of" in message and "What fits: a: --kv-cache-memory-bytes" in message
