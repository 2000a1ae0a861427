"""No value that a request can carry stops the engine: it is refused by name, or it works."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.config import Backend
from octavo.core.sampling_params import (
    INT64_MAX,
    INT64_MIN,
    MAX_REPETITION_PENALTY,
    MAX_TEMPERATURE,
    MIN_REPETITION_PENALTY,
    SamplingParams,
)
from octavo.engine.build import build_engine
from octavo.engine.loop import Engine
from octavo.engine.messages import RequestEnd, Submit
from octavo.engine.prompts import token_id_array
from octavo.errors import UserError
from support.engine_process import NUM_BLOCKS, engine_config
from support.text_model import MAX_LEN, VOCAB_SIZE

MAX_TOKENS = 4
NOTHING_LEFT = "no token is left to draw: allowed_token_ids, bad_words and logit_bias exclude all"
ID_NAMES = ("stop_token_ids", "allowed_token_ids")
WILD_REALS = (
    *(0.0, -0.0, 5e-324, 1e-45, 1e-38, 1e-12, 1e-6, 1e-5, 0.01, 0.5, 1.0, 2.0, 100.0),
    *(MAX_TEMPERATURE, MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY),
    *(3.5e38, 1e300, 1.7e308, -1.0, -2.0, -1e300, math.inf, -math.inf, math.nan, 10**400),
)
WILD_INTEGERS = (
    *(0, 1, -1, -2, 2, 3, 20, VOCAB_SIZE - 1, VOCAB_SIZE, VOCAB_SIZE + 1),
    *(2**31 - 1, 2**31, 2**32, 2**53, INT64_MAX, INT64_MAX + 1, INT64_MIN, INT64_MIN - 1),
    10**30,
)
REAL_NAMES = (
    *("temperature", "top_p", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)
INTEGER_NAMES = ("top_k", "seed", "min_tokens", "logprobs", "prompt_logprobs")
SINGLE: list[dict[str, Any]] = [
    *({name: value} for name in REAL_NAMES for value in WILD_REALS),
    *({name: value} for name in INTEGER_NAMES for value in WILD_INTEGERS),
    *({"max_tokens": value} for value in WILD_INTEGERS if value > MAX_LEN),
    *({name: [value]} for name in ID_NAMES for value in WILD_INTEGERS),
    *({"logit_bias": {5: value}} for value in WILD_REALS),
    *({"logit_bias": {value: 1.0}} for value in WILD_INTEGERS),
]
REALS, INTEGERS = st.sampled_from(WILD_REALS), st.sampled_from(WILD_INTEGERS)
IDS = st.lists(st.one_of(st.integers(0, VOCAB_SIZE - 1), INTEGERS), max_size=4)
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(REAL_NAMES, REALS),
        **dict.fromkeys(INTEGER_NAMES, INTEGERS),
        "n": st.integers(1, 4),
        "ignore_eos": st.booleans(),
        "stop_token_ids": IDS,
        "allowed_token_ids": st.one_of(IDS, st.just(list(range(VOCAB_SIZE)))),
        "bad_words_token_ids": st.lists(IDS, max_size=3),
        "logit_bias": st.dictionaries(INTEGERS, REALS, max_size=3),
    },
)


@pytest.fixture(scope="module", params=list(Backend))
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine over a tiny real model, with each backend."""
    built = build_engine(replace(engine_config(), backend=request.param))
    yield built.engine
    built.engine.close()


def submit(engine: Engine, name: str, params: dict[str, Any]) -> bool:
    """Whether the engine takes a request; if not, the error names what is wrong."""
    params = {"max_tokens": MAX_TOKENS, **params}
    try:
        sampling = SamplingParams(**params)
        engine.submit(Submit(name, token_id_array([5, 6, 7]).tobytes(), sampling, seed=1))
    except UserError as error:
        assert error.parameter in params
        return False
    return True


def check_batch(engine: Engine, batch: list[dict[str, Any]]) -> None:
    """All requests end, beside a plain one that gets its tokens; the only failure is that nothing is left to draw."""
    names = {f"{i}" for i, params in enumerate(batch) if submit(engine, f"{i}", params)}
    assert submit(engine, "plain", {"temperature": 0.0, "ignore_eos": True})
    tokens: list[int] = []
    ends: list[RequestEnd] = []
    while engine.has_work:
        outputs = engine.step()
        tokens += [t for o in outputs.sequences if o.request_id == "plain" for t in o.token_ids]
        ends += outputs.ends
    assert {end.request_id for end in ends} == names | {"plain"}
    assert len(tokens) == MAX_TOKENS
    assert {end.error for end in ends} <= {None, NOTHING_LEFT}
    stats = engine.stats
    assert stats.num_blocks_free + stats.num_blocks_cached == NUM_BLOCKS


def test_each_value_alone(engine: Engine) -> None:
    for params in SINGLE:
        check_batch(engine, [params])


@given(batch=st.lists(PARAMS, min_size=1, max_size=4))
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_values_together(engine: Engine, batch: list[dict[str, Any]]) -> None:
    check_batch(engine, batch)
