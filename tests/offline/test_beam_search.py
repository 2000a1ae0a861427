"""`LLM.beam_search` finds the beams that transformers finds, in float32, token by token."""

import json
from pathlib import Path
from typing import Any

import pytest

from octavo import BeamSearchParams
from octavo.core.beam_search import BeamSearch
from octavo.engine.prompts import token_id_array
from octavo.errors import ContextLengthError
from octavo.models.model import load_model
from octavo.offline.beams import BeamBatch
from octavo.offline.prompts import ParsedPrompt
from support.bf16_folder import bf16_folder
from support.engines import engine_over
from support.offline import assert_idle, make_llm
from support.tiny_models import oracle_beams, prompt, tiny_folder

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
    check_beams(tiny_folder(name), [prompt(length) for length in PROMPT_LENGTHS], params, ends)


GOLDEN = Path(__file__).parents[1] / "data/golden/smollm2-135m-instruct-q4_1.json"
END_OF_TURN, FULL_STOP = 2, 30


@pytest.mark.model
@pytest.mark.long
@pytest.mark.parametrize(("width", "early_stopping"), [(2, False), (4, True), (16, False)])
def test_beams_of_smollm2_equal_transformers(
    smollm2_path: Path, width: int, early_stopping: bool
) -> None:
    """With weights of bfloat16, which both compute with in float32. Sentences end answers."""
    cases = json.loads(GOLDEN.read_text())["cases"][:4]
    params = BeamSearchParams(beam_width=width, max_tokens=16, early_stopping=early_stopping)
    ends = frozenset((END_OF_TURN, FULL_STOP))
    prompts = [case["prompt_token_ids"] for case in cases]
    check_beams(bf16_folder(smollm2_path), prompts, params, ends)


def check_beams(
    folder: Path, prompts: list[list[int]], params: BeamSearchParams, ends: frozenset[int]
) -> None:
    """All beams after all prompts are those of transformers, and then nothing is held."""
    length_penalty = params.length_penalty
    searches = [BeamSearch(params, ends, params.max_tokens) for _ in prompts]
    model = load_model(folder)
    engine = engine_over(model, num_blocks=400)
    BeamBatch(engine, model.spec.vocab_size).run(
        [ParsedPrompt(None, token_id_array(ids)) for ids in prompts], searches
    )
    for ids, search in zip(prompts, searches, strict=True):
        expected = oracle_beams(folder, ids, params, sorted(ends))
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
