"""The life of an `LLM`: numbers, progress, interrupts, threads, failures."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from octavo.backends.reference.runner import ReferenceRunner
from octavo.backends.reference.sampler import sample_token
from octavo.core.step import Sample, StepPlan, StepResult
from octavo.engine.loop import Engine
from octavo.errors import EngineDeadError
from octavo.outputs import RequestOutput
from support.offline import GREEDY, assert_idle, make_llm, token_ids


@pytest.fixture(scope="module", params=["reference", "native"])
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    with make_llm(backend=request.param) as llm:
        yield llm


def test_metrics_and_stats(llm: LLM) -> None:
    before = {metric.name: metric.value for metric in llm.get_metrics()}
    llm.generate(["a", "b"], GREEDY, use_tqdm=False)
    after = {metric.name: metric.value for metric in llm.get_metrics()}
    name = "vllm:generation_tokens_total"
    assert after[name] - before[name] == 16
    assert after["octavo_generation_tokens_total"] == after[name]
    assert 0.0 < after["octavo_kv_waste_ratio_sum_total"] < after["octavo_engine_steps_total"]
    assert llm.kv_stats().num_blocks_total == 64


def test_the_progress_bar_goes_to_standard_error(
    llm: LLM, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    llm.generate(["a", "b"], GREEDY)
    assert capsys.readouterr() == ("", "")  # not a terminal
    monkeypatch.setenv("FORCE_COLOR", "1")
    llm.generate(["a", "b"], GREEDY)
    out, error = capsys.readouterr()
    assert out == ""
    assert "Processed prompts" in error and "2/2" in error and "output tokens/s" in error


def test_a_progress_bar_of_the_caller(llm: LLM) -> None:
    calls: list[Any] = []

    class Bar:
        def __init__(self, **options: Any) -> None:
            calls.append(options["total"])

        def update(self, count: int) -> None:
            calls.append(count)

        def close(self) -> None:
            calls.append("closed")

    llm.generate(["a", "b"], GREEDY, use_tqdm=Bar)
    assert calls == [2, 1, 1, "closed"]


def test_interrupt_aborts_everything_and_leaves_the_llm_usable(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, steps = Engine.step, 0

    def interrupted(engine: Engine) -> Any:
        nonlocal steps
        steps += 1
        if steps == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return step(engine)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(["a", "b"], SamplingParams(max_tokens=100), use_tqdm=False)
    assert steps == 3
    assert_idle(llm)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert len(llm.generate("a", GREEDY, use_tqdm=False)) == 1


def test_threads_take_turns(llm: LLM) -> None:
    results: dict[int, list[RequestOutput]] = {}

    def run(i: int) -> None:
        results[i] = llm.generate([f"prompt {i}"] * 3, GREEDY, use_tqdm=False)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        alone = llm.generate(f"prompt {i}", GREEDY, use_tqdm=False)
        assert token_ids(results[i]) == token_ids(alone) * 3


def test_a_closed_llm_says_so() -> None:
    llm = make_llm()
    llm.close()
    llm.shutdown()
    with pytest.raises(EngineDeadError, match="shut down"):
        llm.generate("a", use_tqdm=False)


def test_a_runner_that_fails_ends_the_llm(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(runner: ReferenceRunner, plan: StepPlan) -> StepResult:
        raise RuntimeError("out of luck")

    with make_llm() as llm:
        monkeypatch.setattr(ReferenceRunner, "run", broken)
        for _ in range(2):
            with pytest.raises(EngineDeadError, match="RuntimeError: out of luck"):
                llm.generate("a", use_tqdm=False)


def test_a_row_that_fails_is_one_result_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(row: Any, sample: Sample, mask: bytes | None) -> Any:
        return sample_token(row * float("nan") if sample.seed == 666 else row, sample, mask)

    monkeypatch.setattr("octavo.backends.reference.runner.sample_token", poisoned)
    bad = SamplingParams(seed=666, max_tokens=4)
    with make_llm() as llm:
        good, failed = llm.generate(["a", "b"], [GREEDY, bad], use_tqdm=False)
        assert good.error is None and len(good.outputs[0].token_ids) == 8
        assert failed.error is not None
        assert failed.outputs[0].finish_reason == "error"
        assert_idle(llm)
