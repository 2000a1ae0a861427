"""With a target, no prompt makes running answers wait longer on the real model; and prompts lose little by it."""

import time
from array import array
from dataclasses import dataclass
from random import Random

import pytest

from octavo.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.core.sampling_params import SamplingParams
from octavo.engine.build import build_engine
from octavo.engine.messages import Submit
from octavo.engine.service import spare_collector

pytestmark = [pytest.mark.model, pytest.mark.long]

SECONDS = 8.0
PROMPT, EVERY_S, NUM_RUNNING = 1500, 2.0, 8


@dataclass(frozen=True)
class Measured:
    """Pauses between tokens of answers that run, in order of length, and prompts' times to the first token."""

    pauses_s: list[float]
    first_tokens_s: list[float]

    def pause(self, share: float) -> float:
        return self.pauses_s[int(share * (len(self.pauses_s) - 1))]


def measure(target_itl_ms: float | None) -> Measured:
    """Eight answers run, and now and then a long prompt comes."""
    config = EngineConfig(
        model=ModelConfig("smollm2"),
        scheduler=SchedulerConfig(target_itl_ms=target_itl_ms),
        cache=CacheConfig(num_blocks=4096),
        speculation=False,
    )
    engine, draw = build_engine(config).engine, Random(1)

    def submit(name: str, length: int, num_tokens: int) -> None:
        prompt = array("i", (draw.randrange(100, 40_000) for _ in range(length)))
        params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
        engine.submit(Submit(name, prompt.tobytes(), params, seed=1))

    for i in range(NUM_RUNNING):
        submit(f"runs{i}", 200, 4000)
    while engine.stats.num_queued_tokens:
        engine.step()
    spare_collector()  # as the engine process does
    start, due = time.perf_counter(), 0.0
    came: dict[str, float] = {}
    pauses, first_tokens = [], []
    while (now := time.perf_counter() - start) < SECONDS:
        if now >= due:
            name, due = f"prompt{len(came)}", due + EVERY_S
            submit(name, PROMPT, 16)
            came[name] = now
        begin = time.perf_counter()
        outputs = engine.step()
        pauses.append(time.perf_counter() - begin)
        first_tokens += [time.perf_counter() - start - came[p.request_id] for p in outputs.prompts]
    engine.abort_all()
    engine.close()
    return Measured(sorted(pauses), first_tokens)


def test_a_target_is_met_and_costs_prompts_little() -> None:
    fixed = measure(None)
    pauses = fixed.pauses_s[
        -len(fixed.first_tokens_s) :
    ]  # one for each prompt: all of it in a step
    target_s = sum(pauses) / len(pauses) / 8
    governed = measure(target_s * 1000)
    assert governed.pause(0.99) < 1.2 * target_s < fixed.pauses_s[-1] / 4
    assert len(governed.first_tokens_s) >= len(fixed.first_tokens_s) - 1
    mean = [sum(m.first_tokens_s) / len(m.first_tokens_s) for m in (governed, fixed)]
    assert mean[0] < 2 * mean[1]
