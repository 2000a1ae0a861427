"""Requests with grammars in the engine: masks reach every draw, whatever happens to the sequences meanwhile."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo.config import Backend, CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.core.grammar import Grammar
from octavo.core.sampling_params import SamplingParams
from octavo.core.structured_outputs import StructuredOutputsParams
from octavo.engine import grammars as grammars_module
from octavo.engine.build import build_engine
from octavo.engine.loop import Engine
from octavo.engine.messages import RequestEnd, Submit
from octavo.engine.prompts import token_id_array
from octavo.errors import InvalidParameterError, UserError
from octavo.text.grammar import TokenGrammarCompiler
from octavo.text.tokenizer import Tokenizer, load_tokenizer
from support.text_model import write_text_model

PATTERN = "[ab]{3}(cd)*[0-9]{1,30}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("grammars") / "model"
    write_text_model(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return load_tokenizer(folder)


def engine_of(
    folder: Path,
    *,
    num_blocks: int = 64,
    speculation: bool = False,
    backend: str = "native",
    **scheduler: Any,
) -> Engine:
    config = EngineConfig(
        model=ModelConfig(model=str(folder)),
        cache=CacheConfig(num_blocks=num_blocks),
        scheduler=SchedulerConfig(**scheduler),
        backend=Backend(backend),
        speculation=speculation,
        seed=0,
    )
    return build_engine(config).engine


@pytest.fixture
def engine(folder: Path) -> Iterator[Engine]:
    made = engine_of(folder)
    yield made
    made.close()


def submit(request_id: str, *, form: Any = None, prompt: int = 5, **params: Any) -> Submit:
    wanted = StructuredOutputsParams(**(form or {"regex": PATTERN}))
    values = {"max_tokens": 60, "temperature": 1.0, **params}
    sampling = SamplingParams(structured_outputs=wanted, **values)
    return Submit(request_id, token_id_array([5, 6, prompt]).tobytes(), sampling, seed=7)


def run(engine: Engine) -> tuple[dict[tuple[str, int], list[int]], dict[str, RequestEnd]]:
    """Tokens of each sequence, without the end token, and the ends."""
    tokens: dict[tuple[str, int], list[int]] = {}
    ends: dict[str, RequestEnd] = {}
    num_steps = 0
    while engine.has_work:
        num_steps += 1
        assert num_steps < 100_000
        outputs = engine.step()
        for output in outputs.sequences:
            known = tokens.setdefault((output.request_id, output.index), [])
            known += output.token_ids
            if output.finish_reason == "stop":
                known.pop()
        for end in outputs.ends:
            assert end.request_id not in ends
            ends[end.request_id] = end
    assert engine.stats.num_blocks_referenced == 0
    return tokens, ends


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_samples_of_a_request_go_their_own_ways(
    folder: Path, tokenizer: Tokenizer, backend: str
) -> None:
    engine = engine_of(folder, backend=backend)
    engine.submit(submit("r", n=6))
    engine.submit(
        Submit(
            "free",
            token_id_array([5, 6]).tobytes(),
            SamplingParams(max_tokens=5, ignore_eos=True),
            seed=1,
        )
    )
    tokens, ends = run(engine)
    texts = [tokenizer.decode(tokens["r", i]) for i in range(6)]
    assert all(re.fullmatch(PATTERN, text) for text in texts), texts
    assert len(set(texts)) > 1 and len(tokens["free", 0]) == 5
    assert all(end.error is None for end in ends.values())
    engine.close()


def test_preemption_and_company_change_nothing(folder: Path) -> None:
    alone, short_of_pages = engine_of(folder), engine_of(folder, num_blocks=6, max_num_seqs=4)
    requests = [submit(f"r{i}", prompt=10 + i, form={"regex": "[a-z]{45}"}) for i in range(4)]
    expected = {}
    for request in requests:
        alone.submit(request)
        expected.update(run(alone)[0])
    for request in requests:
        short_of_pages.submit(request)
    tokens, _ = run(short_of_pages)
    assert short_of_pages.stats.num_preemptions > 0
    assert tokens == expected
    alone.close()
    short_of_pages.close()


def test_guessing_ahead_changes_nothing(folder: Path, tokenizer: Tokenizer) -> None:
    plain, guessing = engine_of(folder), engine_of(folder, speculation=True)
    forms = (
        {"regex": "(abc)*abcabcabcabcabcabc0"},
        {"json": {"type": "array", "items": {"const": 1}, "minItems": 12, "maxItems": 15}},
    )
    for number, form in enumerate(forms):
        answers = []
        for engine in (plain, guessing):
            engine.submit(submit(f"r{number}", form=form, temperature=0.7))
            answers.append(run(engine)[0])
        assert answers[0] == answers[1]
    assert guessing.stats.num_accepted_tokens > 0
    plain.close()
    guessing.close()


def test_masks_go_with_every_other_option(engine: Engine, tokenizer: Tokenizer) -> None:
    letters = {
        name: tokenizer.encode(name, add_special_tokens=False)[0] for name in "abcd0123456789"
    }
    options: list[dict[str, Any]] = [
        {"logit_bias": {letters["b"]: 100}}, {"min_p": 0.5}, {"top_k": 3}, {"top_p": 0.2}, {"repetition_penalty": 2.0},
        {"presence_penalty": 2.0, "frequency_penalty": -1.0}, {"temperature": 0.0}, {"min_tokens": 12},
        {"allowed_token_ids": (letters["a"], letters["7"], 2)}, {"logprobs": 3}, {"stop_token_ids": (letters["9"],)},
        {"bad_words_token_ids": ((letters["a"],),)},
    ]  # fmt: skip
    for number, option in enumerate(options):
        engine.submit(submit(f"r{number}", **option))
    tokens, ends = run(engine)
    for number, option in enumerate(options):
        assert ends[f"r{number}"].error is None, option
        text = tokenizer.decode(tokens[f"r{number}", 0])
        matches = re.fullmatch(PATTERN, text)
        assert matches or "stop_token_ids" in option, (option, text)
    assert tokenizer.decode(tokens["r0", 0]).startswith("bbb")
    assert set(tokenizer.decode(tokens["r8", 0])) == {"a", "7"}
    assert len(tokens["r7", 0]) >= 12


def test_nothing_left_to_draw_fails_that_request_alone(engine: Engine) -> None:
    engine.submit(submit("r", allowed_token_ids=(9,)))
    engine.submit(submit("other"))
    _, ends = run(engine)
    assert "grammar" in (ends["r"].error or "") and ends["other"].error is None


def test_a_refused_grammar_ends_its_request_alone(engine: Engine) -> None:
    engine.submit(submit("bad", form={"json": {"items": {"type": "x"}}}))
    engine.submit(submit("good"))
    _, ends = run(engine)
    assert ends["good"].error is None
    assert "#/items: Invalid type" in (ends["bad"].error or "")
    assert (ends["bad"].error_type, ends["bad"].error_parameter) == (
        "InvalidParameterError",
        "structured_outputs",
    )
    with pytest.raises(InvalidParameterError, match="#/items"):
        engine.check_grammar(submit("x", form={"json": {"items": {"type": "x"}}}).params)


class SlowCompiler:
    """Compiles when it is told to."""

    def __init__(self, compiler: TokenGrammarCompiler, seconds: float) -> None:
        self._compiler = compiler
        self._seconds = seconds
        self.masks = compiler.masks
        self.find = compiler.find

    def compile(self, params: StructuredOutputsParams) -> Grammar:
        time.sleep(self._seconds)
        return self._compiler.compile(params)


def slow_engine(folder: Path, tokenizer: Tokenizer, seconds: float) -> Engine:
    engine = engine_of(folder, max_num_queued_reqs=2)
    compiler = TokenGrammarCompiler(
        lambda: tokenizer, vocab_size=tokenizer.vocab_size, end_token_ids=[2]
    )
    engine._grammars = grammars_module.Grammars(SlowCompiler(compiler, seconds))
    return engine


def test_others_run_while_a_grammar_is_compiled(folder: Path, tokenizer: Tokenizer) -> None:
    engine = slow_engine(folder, tokenizer, 0.5)
    engine.submit(submit("slow"))
    free = SamplingParams(max_tokens=5, ignore_eos=True)
    for again in (submit("slow"), Submit("slow", token_id_array([5]).tobytes(), free, seed=1)):
        with pytest.raises(UserError, match="unique"):
            engine.submit(again)
    engine.submit(Submit("free", token_id_array([5]).tobytes(), free, seed=1))
    _, ends = run(engine)
    assert list(ends) == ["free", "slow"] and ends["slow"].error is None
    engine.close()


def test_a_grammar_that_takes_too_long_is_refused(
    folder: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammars_module, "COMPILE_TIMEOUT_S", 0.05)
    engine = slow_engine(folder, tokenizer, 1.0)
    engine.submit(submit("slow"))
    _, ends = run(engine)
    assert "not compiled after" in (ends["slow"].error or "")
    engine.close()


def test_requests_that_wait_for_a_grammar_count_and_can_be_aborted(
    folder: Path, tokenizer: Tokenizer
) -> None:
    engine = slow_engine(folder, tokenizer, 0.3)
    for name in ("a", "b"):
        engine.submit(submit(name, form={"regex": name}))
    with pytest.raises(Exception, match="2 requests are waiting"):
        engine.submit(submit("c"))
    (end,) = engine.abort(["a"]).ends
    assert end.request_id == "a" and end.error is None
    assert engine.abort(["a"]).ends == []
    (end,) = engine.abort_all().ends
    assert end.request_id == "b" and not engine.has_work
    engine.close()


def test_an_engine_without_compiler_says_so(folder: Path) -> None:
    engine = engine_of(folder)
    engine._grammars = grammars_module.Grammars(None)
    with pytest.raises(UserError, match="not supported by this engine"):
        engine.submit(submit("r"))
    assert not engine.has_work
    engine.close()
