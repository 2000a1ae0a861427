"""`LLM.beam_search` finds the beams that transformers finds, in float32, token by token."""

from typing import Any

import pytest

from octavo import BeamSearchParams
from octavo.core.beam_search import BeamSearch
from octavo.engine.prompts import token_id_array
from octavo.errors import ContextLengthError
from octavo.models.model import load_model
from octavo.offline.beams import BeamBatch
from octavo.offline.prompts import ParsedPrompt
from support.engines import engine_over
from support.offline import assert_idle, make_llm
from support.tiny_models import VOCAB_SIZE, oracle_beams, prompt, tiny_folder

PROMPT_LENGTHS = (1, 15, 16, 40)
LOGPROB_TOLERANCE = 1e-3
"""Of twelve tokens together, in float32 on both sides."""


@pytest.mark.parametrize(
    ("name", "length_penalty", "early_stopping", "width"),
    [
        *(
            ("llama", length_penalty, early_stopping, 4)
            for length_penalty in (1.0, 0.0, -1.0, 2.0)
            for early_stopping in (False, True, "never")
        ),
        ("llama", 1.0, False, 16),
        ("gemma3", 1.0, False, 2),
        ("gemma3", 1.0, True, 16),
    ],
)
def test_beams_equal_transformers(
    name: str, length_penalty: float, early_stopping: bool | str, width: int
) -> None:
    params = BeamSearchParams(
        beam_width=width,
        max_tokens=12,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
    )
    # Many end tokens, so that beams end early, at different lengths.
    ends = frozenset(range(3, 9))
    prompts = [prompt(length) for length in PROMPT_LENGTHS]
    searches = [BeamSearch(params, ends, params.max_tokens) for _ in prompts]
    engine = engine_over(load_model(tiny_folder(name)), num_blocks=400)
    BeamBatch(engine, VOCAB_SIZE).run(
        [ParsedPrompt(None, token_id_array(ids)) for ids in prompts], searches
    )
    for ids, search in zip(prompts, searches, strict=True):
        expected = oracle_beams(name, ids, params, sorted(ends))
        assert [list(ended.beam.token_ids) for ended in search.ended] == [b for b, _ in expected]
        for ended, (tokens, score) in zip(search.ended, expected, strict=True):
            assert ended.score == ended.beam.logprob / len(tokens) ** length_penalty
            logprob = (
                score * len(tokens) ** length_penalty
            )  # whose error does not depend on the penalty
            assert ended.beam.logprob == pytest.approx(logprob, abs=LOGPROB_TOLERANCE)
    stats = engine.stats
    assert (stats.num_running, stats.num_waiting, stats.num_blocks_referenced) == (0, 0, 0)
    engine.close()


def test_a_round_computes_a_token_for_each_beam_and_shares_the_rest() -> None:
    with make_llm(max_logprobs=0) as llm:  # which is a limit for users
        params = BeamSearchParams(beam_width=4, max_tokens=6, ignore_eos=True)
        before = llm.kv_stats()
        (output,) = llm.beam_search("a beginning of some length, more than a page", params)
        assert len(output.sequences) == 4
        assert {sequence.finish_reason for sequence in output.sequences} == {"length"}
        stats = llm.kv_stats()
        num_prompt = len(output.sequences[0].tokens) - 6
        computed = stats.num_prefix_queries - stats.num_prefix_hits - before.num_prefix_queries
        # The prompt once; then a token for each beam, and where two share a page in part, what the page of the other
        # does not hold.
        assert computed < num_prompt + 5 * 4 * 8
        assert_idle(llm)


def test_one_prompt_that_cannot_run_stops_all_before_they_run() -> None:
    with make_llm(max_model_len=32) as llm:
        params = BeamSearchParams(beam_width=2, max_tokens=4)
        prompts: Any = ["a", [5] * 40]
        with pytest.raises(ContextLengthError, match=r"prompts\[1\]"):
            llm.beam_search(prompts, params)
        assert llm.kv_stats().num_steps == 0
        assert_idle(llm)


def test_the_context_bounds_the_beams() -> None:
    with make_llm(max_model_len=32) as llm:
        token_ids: Any = [5] * 30
        (output,) = llm.beam_search(
            [token_ids], BeamSearchParams(beam_width=3, max_tokens=9, ignore_eos=True)
        )
        assert {len(sequence.tokens) for sequence in output.sequences} == {32}
