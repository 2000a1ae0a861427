"""Putting an engine together, for both backends."""

import dataclasses

import pytest

from octavo.config import Backend, CacheConfig, ModelConfig
from octavo.core.sampling_params import SamplingParams
from octavo.core.step import Runner
from octavo.engine.build import build_engine
from octavo.engine.messages import Submit
from octavo.engine.prompts import token_id_array
from octavo.errors import CheckpointError, ConfigError
from support.engine_process import NUM_BLOCKS, engine_config
from support.fake_runner import FakeRunner
from support.text_model import MAX_LEN, VOCAB_SIZE


@pytest.mark.parametrize("backend", list(Backend))
def test_an_engine_of_each_backend_answers(backend: Backend) -> None:
    built = build_engine(dataclasses.replace(engine_config(), backend=backend))
    ready = built.ready
    assert (ready.vocab_size, ready.max_model_len) == (VOCAB_SIZE, MAX_LEN)
    assert (ready.num_blocks, ready.block_size) == (NUM_BLOCKS, 16)
    assert (ready.isa == "numpy") == (backend is Backend.REFERENCE)
    params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
    built.engine.submit(Submit("a", token_id_array([5, 6, 7]).tobytes(), params, seed=0))
    tokens = 0
    while built.engine.has_work:
        tokens += sum(len(output.token_ids) for output in built.engine.step().sequences)
    assert tokens == 4
    built.engine.close()


def test_the_backends_agree_on_a_greedy_answer() -> None:
    answers = []
    for backend in Backend:
        model = dataclasses.replace(engine_config().model, dtype="float32")
        config = dataclasses.replace(engine_config(), backend=backend, model=model)
        engine = build_engine(config).engine
        params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
        engine.submit(Submit("a", token_id_array([5, 6, 7]).tobytes(), params, seed=0))
        answer: list[int] = []
        while engine.has_work:
            for output in engine.step().sequences:
                answer += output.token_ids
        answers.append(answer)
        engine.close()
    assert answers[0] == answers[1]


def test_progress_is_told() -> None:
    stages: list[tuple[str, float]] = []
    config = dataclasses.replace(engine_config(), backend=Backend.NATIVE)
    build_engine(config, progress=lambda stage, done: stages.append((stage, done))).engine.close()
    assert stages
    assert all(stage and 0.0 <= done <= 1.0 for stage, done in stages)


def test_another_runner_may_take_its_place() -> None:
    given: list[Runner] = []

    def wrap(runner: Runner) -> Runner:
        given.append(runner)
        return FakeRunner(7, 16)

    built = build_engine(engine_config(), wrap_runner=wrap)
    assert given[0].num_blocks == NUM_BLOCKS
    assert built.ready.num_blocks == built.engine.stats.num_blocks_total == 7


def test_what_cannot_be_built_is_named() -> None:
    config = engine_config()
    with pytest.raises(CheckpointError, match="no-such-model"):
        build_engine(dataclasses.replace(config, model=ModelConfig(model="./no-such-model")))
    too_long = dataclasses.replace(config.model, max_model_len=MAX_LEN + 1)
    with pytest.raises(ConfigError, match="max_model_len"):
        build_engine(dataclasses.replace(config, model=too_long))
    both = CacheConfig(num_blocks=4, kv_cache_memory_bytes=1 << 20)
    with pytest.raises(ConfigError, match="num_blocks"):
        build_engine(dataclasses.replace(config, cache=both))
