"""`LLM` over the tiny text model: forms of prompts, order, errors, sampling, chats."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from octavo.errors import (
    ContextLengthError,
    InvalidParameterError,
    PromptError,
    TemplateError,
    UnsupportedParameterError,
    UserError,
)
from support.offline import GREEDY, assert_idle, make_llm, token_ids
from support.text_model import BOS, EOS, MAX_LEN, TURN, VOCAB_SIZE, write_text_model

RANDOM = SamplingParams(max_tokens=8, ignore_eos=True)


@pytest.fixture(scope="module", params=["reference", "native"])
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    with make_llm(backend=request.param) as llm:
        yield llm


# --- forms of prompts


def test_every_form_of_one_prompt_gives_the_same_answer(llm: LLM) -> None:
    ids = llm.get_tokenizer().encode("hello")
    assert ids[0] == BOS
    forms: list[Any] = [
        "hello",
        ["hello"],
        {"prompt": "hello"},
        {"prompt_token_ids": ids},
        {"prompt": "hello", "prompt_token_ids": ids},
        [{"prompt": "hello", "cache_salt": "x"}],
        ids,
        tuple(ids),
        [ids],
    ]
    answers = [token_ids(llm.generate(form, GREEDY, use_tqdm=False)) for form in forms]
    assert answers == [answers[0]] * len(forms)
    assert len(answers[0][0]) == 8


def test_results_are_in_the_order_of_the_prompts(llm: LLM) -> None:
    prompts = [f"prompt number {i}" for i in range(20)]
    params = [SamplingParams(temperature=0.0, max_tokens=1 + 7 * i % 11) for i in range(20)]
    results = llm.generate(prompts, params, use_tqdm=False)
    assert [result.prompt for result in results] == prompts
    alone = [llm.generate(p, q, use_tqdm=False)[0] for p, q in zip(prompts, params, strict=True)]
    assert token_ids(results) == token_ids(alone)
    assert [r.outputs[0].text for r in results] == [r.outputs[0].text for r in alone]


def test_a_result_says_all_of_its_request(llm: LLM) -> None:
    (result,) = llm.generate("hi", GREEDY, use_tqdm=False)
    assert result.prompt == "hi"
    assert result.prompt_token_ids == llm.get_tokenizer().encode("hi")
    assert result.finished and result.error is None
    (output,) = result.outputs
    assert output.finish_reason == "length"
    assert output.text == llm.get_tokenizer().decode(output.token_ids)
    assert output.logprobs is None and output.cumulative_logprob is None
    metrics = result.metrics
    assert metrics is not None and metrics.first_token_time is not None
    assert metrics.arrival_time <= metrics.first_token_time <= metrics.finished_time


def test_no_prompts_no_results(llm: LLM) -> None:
    assert llm.generate([], use_tqdm=False) == []


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        ("\ud800", PromptError),
        ([], PromptError),
        ([VOCAB_SIZE], PromptError),
        ([-1], PromptError),
        ([1.5], PromptError),
        (5, PromptError),
        (b"bytes", PromptError),
        ({}, PromptError),
        ({"promt": "x"}, InvalidParameterError),
        ({"prompt_embeds": None}, UnsupportedParameterError),
        ("x" * MAX_LEN, ContextLengthError),
    ],
)
def test_one_bad_prompt_stops_the_call_before_anything_runs(
    llm: LLM, prompt: Any, error: type[UserError]
) -> None:
    steps = llm.kv_stats().num_steps
    with pytest.raises(error, match=r"prompts\[1\]: "):
        llm.generate(["good", prompt, "good"], GREEDY, use_tqdm=False)
    assert llm.kv_stats().num_steps == steps
    assert_idle(llm)
    assert len(llm.generate("good", GREEDY, use_tqdm=False)) == 1


def test_a_prompt_beyond_the_context_gets_the_usual_text(llm: LLM) -> None:
    with pytest.raises(ContextLengthError) as caught:
        llm.generate([5] * MAX_LEN, GREEDY, use_tqdm=False)
    assert str(caught.value) == (
        f"This model's maximum context length is {MAX_LEN} tokens. However, you requested {MAX_LEN + 8} tokens "
        f"({MAX_LEN} in the messages, 8 in the completion). Please reduce the length of the messages or completion."
    )


def test_a_completion_beyond_the_context_ends_there(llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=50, ignore_eos=True)
    (result,) = llm.generate([5] * (MAX_LEN - 3), params, use_tqdm=False)
    assert len(result.outputs[0].token_ids) == 3
    assert result.outputs[0].finish_reason == "length"


def test_max_tokens_none_runs_to_the_end_of_the_context(llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=None, ignore_eos=True)
    (result,) = llm.generate([5] * (MAX_LEN - 9), params, use_tqdm=False)
    assert len(result.outputs[0].token_ids) == 9


# --- parameters


def test_parameters_must_be_one_or_as_many_as_prompts(llm: LLM) -> None:
    with pytest.raises(InvalidParameterError, match=r"sampling_params .* 3 prompts; given: 2"):
        llm.generate(["a", "b", "c"], [GREEDY, GREEDY], use_tqdm=False)
    with pytest.raises(InvalidParameterError, match="priority"):
        llm.generate(["a", "b"], GREEDY, use_tqdm=False, priority=[1])


def test_bad_parameters_name_their_prompt(llm: LLM) -> None:
    bad = SamplingParams(logprobs=21)
    with pytest.raises(InvalidParameterError, match=r"prompts\[2\]: logprobs must be at most 20"):
        llm.generate(["a", "b", "c"], [GREEDY, GREEDY, bad], use_tqdm=False)
    assert_idle(llm)


def test_parallel_samples(llm: LLM) -> None:
    params = SamplingParams(n=4, seed=7, max_tokens=10, ignore_eos=True)
    first, second = llm.generate(["a", "a"], params, use_tqdm=False)
    assert [output.index for output in first.outputs] == [0, 1, 2, 3]
    texts = [output.token_ids for output in first.outputs]
    assert len({tuple(text) for text in texts}) == 4
    assert texts == [output.token_ids for output in second.outputs]


def test_unseeded_requests_differ_and_are_the_same_in_a_new_llm() -> None:
    def answers(seed: int) -> list[list[int]]:
        with make_llm(seed=seed) as llm:
            return token_ids(llm.generate(["x", "x"], RANDOM, use_tqdm=False)) + token_ids(
                llm.generate("x", RANDOM, use_tqdm=False)
            )

    first = answers(3)
    assert len({tuple(answer) for answer in first}) == 3
    assert answers(3) == first
    assert answers(4) != first


def test_logprobs_are_dicts_with_the_token_first(llm: LLM) -> None:
    params = SamplingParams(max_tokens=6, logprobs=2, prompt_logprobs=1, seed=1, ignore_eos=True)
    (result,) = llm.generate("abc", params, use_tqdm=False)
    (output,) = result.outputs
    assert output.logprobs is not None and result.prompt_logprobs is not None
    assert len(output.logprobs) == 6
    for token_id, values in zip(output.token_ids, output.logprobs, strict=True):
        assert next(iter(values)) == token_id
        assert len(values) in (2, 3)
        assert sorted(v.rank or 0 for v in values.values())[:2] == [1, 2]
        assert values[token_id].decoded_token == llm.get_tokenizer().token_text(token_id)
    total = sum(
        values[t].logprob for t, values in zip(output.token_ids, output.logprobs, strict=True)
    )
    assert output.cumulative_logprob == pytest.approx(total)
    assert result.prompt_logprobs[0] is None
    for token_id, known in zip(
        result.prompt_token_ids[1:], result.prompt_logprobs[1:], strict=True
    ):
        assert known is not None and next(iter(known)) == token_id


def test_a_stop_string_ends_text_and_tokens(llm: LLM) -> None:
    (whole,) = llm.generate("q", GREEDY, use_tqdm=False)
    text, ids = whole.outputs[0].text, whole.outputs[0].token_ids
    stop = next(piece for piece in text if piece != "\ufffd")
    params = SamplingParams(temperature=0.0, max_tokens=400, ignore_eos=True, stop=(stop,))
    before = llm.kv_stats().num_generation_tokens
    (result,) = llm.generate("q", params, use_tqdm=False)
    (output,) = result.outputs
    assert output.text == text[: text.index(stop)]
    assert (output.finish_reason, output.stop_reason) == ("stop", stop)
    assert output.token_ids == ids[: len(output.token_ids)]
    assert llm.kv_stats().num_generation_tokens - before <= len(output.token_ids) + 1
    assert_idle(llm)


def test_end_tokens_and_stop_tokens(llm: LLM) -> None:
    forced = SamplingParams(logit_bias={EOS: 100.0}, max_tokens=5, temperature=0.0)
    (result,) = llm.generate("a", forced, use_tqdm=False)
    assert (result.outputs[0].token_ids, result.outputs[0].text) == ([EOS], "")
    assert (result.outputs[0].finish_reason, result.outputs[0].stop_reason) == ("stop", None)
    own = SamplingParams(
        logit_bias={70: 100.0}, max_tokens=5, temperature=0.0, stop_token_ids=(70,)
    )
    (result,) = llm.generate("a", own, use_tqdm=False)
    assert (result.outputs[0].finish_reason, result.outputs[0].stop_reason) == ("stop", 70)


def test_bad_words_are_never_generated(llm: LLM) -> None:
    (free,) = llm.generate("a", GREEDY, use_tqdm=False)
    word = llm.get_tokenizer().token_text(free.outputs[0].token_ids[0])
    if word == "\ufffd":
        word = "J"
    banned = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True, bad_words=(word,))
    (result,) = llm.generate("a", banned, use_tqdm=False)
    assert word not in result.outputs[0].text


def test_without_detokenize_there_is_no_text(llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=4, detokenize=False, ignore_eos=True)
    (result,) = llm.generate("a", params, use_tqdm=False)
    assert result.outputs[0].text == ""
    assert len(result.outputs[0].token_ids) == 4


def test_default_parameters_are_those_of_the_model(tmp_path: Path) -> None:
    write_text_model(tmp_path / "m", generation_config={"temperature": 0.3, "top_k": 7})
    arguments: dict[str, Any] = {"backend": "reference", "num_gpu_blocks_override": 8}
    with LLM(tmp_path / "m", **arguments) as llm:
        assert llm.get_default_sampling_params() == SamplingParams(temperature=0.3, top_k=7)
        assert len(llm.generate("a", use_tqdm=False)[0].outputs[0].token_ids) <= 16
    with LLM(tmp_path / "m", generation_config="vllm", **arguments) as llm:
        assert llm.get_default_sampling_params() == SamplingParams()
    override = {"temperature": 0.0, "max_new_tokens": 3}
    with LLM(tmp_path / "m", override_generation_config=override, **arguments) as llm:
        params = llm.get_default_sampling_params()
        assert (params.temperature, params.max_tokens) == (0.0, 3)
    with pytest.raises(InvalidParameterError, match="do_sample"):
        LLM(tmp_path / "m", override_generation_config={"do_sample": True}, **arguments)
    with pytest.raises(UnsupportedParameterError, match="generation_config"):
        LLM(tmp_path / "m", generation_config="elsewhere", **arguments)


# --- chat


def test_chat_renders_the_template_and_encodes_it_once(llm: LLM) -> None:
    conversation = [{"role": "user", "content": "hi"}]
    (result,) = llm.chat(conversation, GREEDY, use_tqdm=False)
    assert result.prompt == "<bos><|turn|>user:hi\n<|turn|>assistant:"
    assert result.prompt_token_ids[:2] == [BOS, TURN]
    assert result.prompt_token_ids.count(BOS) == 1
    assert result.prompt_token_ids.count(TURN) == 2


def test_chats_in_a_list_and_their_errors(llm: LLM) -> None:
    conversation = [{"role": "user", "content": "hi"}]
    results = llm.chat([conversation, conversation], GREEDY, use_tqdm=False)
    assert token_ids(results)[0] == token_ids(results)[1]
    with pytest.raises(InvalidParameterError, match=r"prompts\[1\]: .*content"):
        llm.chat([conversation, [{"role": "user"}]], GREEDY, use_tqdm=False)


def test_chat_with_another_template_and_without_a_prompt_for_the_answer(llm: LLM) -> None:
    conversation = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well"}]
    (result,) = llm.chat(
        conversation,
        GREEDY,
        use_tqdm=False,
        add_generation_prompt=False,
        continue_final_message=True,
    )
    assert result.prompt is not None and result.prompt.endswith("assistant:Well")
    (result,) = llm.chat(
        conversation[:1],
        GREEDY,
        use_tqdm=False,
        chat_template="{{ shout }}{{ messages[0].content }}",
        chat_template_kwargs={"shout": "HEY "},
    )
    assert result.prompt == "HEY hi"


def test_a_model_without_a_chat_template_says_so(tmp_path: Path) -> None:
    write_text_model(tmp_path / "m")
    (tmp_path / "m" / "tokenizer_config.json").unlink()
    with (
        LLM(tmp_path / "m", backend="reference", num_gpu_blocks_override=8) as llm,
        pytest.raises(TemplateError, match="no chat template"),
    ):
        llm.chat([{"role": "user", "content": "hi"}], use_tqdm=False)


# --- named prefixes


def test_a_named_prefix_holds_its_pages_and_shows_them(llm: LLM) -> None:
    beginning = "an instruction that many prompts begin with, of some length"
    try:
        made = llm.pin_prefix("one", beginning, ttl_s=60)
        tokens = llm.get_tokenizer().encode(beginning)
        assert (made.num_tokens, made.num_blocks) == (len(tokens), len(tokens) // 16)
        assert made.num_bytes > 0 and 59 < (made.expires_in_s or 0) <= 60
        assert [p.name for p in llm.named_prefixes()] == ["one"]
        assert llm.kv_stats().num_blocks_pinned == made.num_blocks
        llm.reset_prefix_cache()
        (output,) = llm.generate({"prompt_token_ids": [*tokens, 40, 41]}, GREEDY)
        assert (output.num_cached_tokens or 0) >= made.num_blocks * 16
        (salted,) = llm.generate({"prompt_token_ids": [*tokens, 40, 41], "cache_salt": "a"}, GREEDY)
        assert salted.num_cached_tokens == 0
        with pytest.raises(InvalidParameterError, match="at least 16 tokens"):
            llm.pin_prefix("two", "short")
        with pytest.raises(InvalidParameterError, match="ttl_s"):
            llm.pin_prefix("two", beginning, ttl_s=0)
    finally:
        llm.unpin_prefix("one")
    assert llm.named_prefixes() == []
    assert_idle(llm)
