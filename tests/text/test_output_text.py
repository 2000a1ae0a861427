"""From tokens to text with stops: R23, R25, R35, R37 at the level of one sequence."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.core.sampling_params import SamplingParams
from octavo.text.output_text import OutputText, TextDelta
from octavo.text.tokenizer import Tokenizer
from support.tiny_tokenizers import END, TURN, byte_level_tokenizer, sentencepiece_tokenizer

TOKENIZER = byte_level_tokenizer()
END_ID, TURN_ID = 0, 1


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


def run(
    token_ids: Sequence[int],
    finish: str | None = "length",
    *,
    sizes: Sequence[int] = (1,),
    tokenizer: Tokenizer = TOKENIZER,
    prompt: Sequence[int] = (),
    stop_reason: int | None = None,
    **params: Any,
) -> TextDelta:
    """Feed tokens in chunks until the end, as a server does; the deltas as one."""
    output = OutputText(tokenizer, SamplingParams(max_tokens=1000, **params), prompt)
    texts, num_tokens, start, turn = [], 0, 0, 0
    while True:
        end = min(start + sizes[turn % len(sizes)], len(token_ids))
        is_last = end == len(token_ids)
        delta = output.add(
            token_ids[start:end], finish if is_last else None, stop_reason if is_last else None
        )
        texts.append(delta.text)
        num_tokens += delta.num_tokens
        if delta.finish_reason is not None or is_last:
            # Nothing comes after the end, whatever was on its way.
            if delta.finish_reason is not None:
                assert output.add(encode("more"), "length") == ("", 0, None, None)
            return TextDelta("".join(texts), num_tokens, delta.finish_reason, delta.stop_reason)
        start, turn = end, turn + 1


def test_without_stops() -> None:
    ids = encode("The Paris 日")
    assert run(ids) == ("The Paris 日", len(ids), "length", None)
    assert run(ids, None) == ("The Paris 日", len(ids), None, None)
    assert run(ids[:-1]) == ("The Paris \ufffd", len(ids) - 1, "length", None)
    assert run([], "abort") == ("", 0, "abort", None)


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("stop", [(), ("never",)])
def test_the_end_token_is_not_text(skip: bool, include: bool, stop: tuple[str, ...]) -> None:
    """As in vLLM: shown only if stops are to be included and special tokens are not skipped."""
    params: dict[str, Any] = {
        "skip_special_tokens": skip,
        "include_stop_str_in_output": include,
        "stop": stop,
    }
    ids = encode("hex")
    text = "hex" + (END if include and not skip else "")
    assert run([*ids, END_ID], "stop", **params) == (text, len(ids) + 1, "stop", None)
    # One of the request's own stop tokens, not special: told by its id.
    dot = encode(".")[0]
    text = "hex" + ("." if include else "")
    delta = run([*ids, dot], "stop", stop_reason=dot, **params)
    assert delta == (text, len(ids) + 1, "stop", dot)


@pytest.mark.parametrize("stop", ["Pari", "ari", " P", "s", "Paris", " Paris"])
@pytest.mark.parametrize("include", [True, False])
def test_stop_inside_a_token(stop: str, include: bool) -> None:
    """R25: the text ends before the match, the rest of the token is dropped, the token counts."""
    token = encode(" Paris")
    assert len(token) == 1
    ids = [*encode("in"), *token, *encode(" today")]
    before = "in Paris"[: "in Paris".index(stop)]
    expected = (before + (stop if include else ""), len(encode("in")) + 1, "stop", stop)
    for sizes in ([1], [2], [3, 1], [len(ids)]):
        assert run(ids, sizes=sizes, stop=stop, include_stop_str_in_output=include) == expected


def test_stop_across_tokens_and_characters() -> None:
    ids = encode("ab 日本語 cd")
    assert run(ids, stop=("日本",))[0] == "ab "
    assert run(ids, stop=("本語 c",)) == ("ab 日", len(encode("ab 日本語 c")), "stop", "本語 c")
    assert run(ids, stop=("語 x",)) == ("ab 日本語 cd", len(ids), "length", None)


def test_a_stop_completed_by_the_last_token_wins() -> None:
    """R37: over "length", over the engine's own stop of later tokens, and over "abort"."""
    ids = encode("one two")
    for finish in ("length", "abort"):
        assert run(ids, finish, stop="two")[2:] == ("stop", "two")
    assert run([*ids, END_ID], "stop", sizes=[99], stop="two") == ("one ", len(ids), "stop", "two")
    assert run([*ids, END_ID], "stop", stop="twox") == ("one two", len(ids) + 1, "stop", None)


def test_held_back_text_comes_at_the_end() -> None:
    output = OutputText(TOKENIZER, SamplingParams(stop=("\n\nUser:",)), [])
    assert output.add(encode("x\n")).text == "x"
    assert output.add(encode("\n")).text == ""
    assert output.add(encode("U"), "length") == ("\n\nU", 1, "length", None)


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("include", [True, False])
def test_stop_that_is_a_special_token(skip: bool, include: bool) -> None:
    """R35: stops there whether its text is shown or not, and without spaces around it."""
    ids = [*encode("one"), TURN_ID, *encode(" two")]
    params: dict[str, Any] = {"skip_special_tokens": skip, "include_stop_str_in_output": include}
    text = "one" + (TURN if include and not skip else "")
    expected = (text, len(encode("one")) + 1, "stop", TURN)
    for sizes in ([1], [2], [99]):
        assert run(ids, sizes=sizes, stop=TURN, **params) == expected
        assert run(ids, sizes=sizes, stop=("x", TURN, "two"), **params) == expected
    # The engine stopped there by itself: the reason is still what the request asked for.
    ended = run([*encode("one"), END_ID], "stop", stop=END, **params)
    assert ended[1:] == (len(encode("one")) + 1, "stop", END)
    assert ended[0] == "one" + (END if include and not skip else "")
    # And through stop_token_ids, which the engine checks.
    by_id = run([*encode("one"), TURN_ID], "stop", stop_reason=TURN_ID, **params)
    assert by_id == (text, len(encode("one")) + 1, "stop", TURN_ID)


def test_hidden_text_of_special_tokens_is_not_searched() -> None:
    ids = [*encode("a"), TURN_ID, *encode("b")]
    assert run(ids, stop="|>") == ("ab", 3, "length", None)
    assert run(ids, stop="ab") == ("", 3, "stop", "ab")
    assert run(ids, stop="|>", skip_special_tokens=False) == (f"a{TURN[:-2]}", 2, "stop", "|>")
    assert run(ids, stop=f"a{TURN}b", skip_special_tokens=False)[2:] == ("stop", f"a{TURN}b")


@pytest.mark.parametrize("sizes", [[1], [3], [7, 2], [99]])
def test_min_tokens(sizes: list[int]) -> None:
    """R23: a match counts if it begins in the text after the first min_tokens tokens; none fires late."""
    word = encode(" Paris")
    ids = word * 20
    stopped = run(ids, sizes=sizes, stop="Paris", min_tokens=10)
    assert stopped == (" Paris" * 10 + " ", 11, "stop", "Paris")
    assert run(ids, sizes=sizes, stop=" Paris", min_tokens=20) == (
        " Paris" * 20,
        20,
        "length",
        None,
    )
    # Begins in token 10, complete in token 11: not a stop. The next one is.
    across = run(ids, sizes=sizes, stop="ris Pa", min_tokens=10)
    assert across == (" Paris" * 10 + " Pa", 12, "stop", "ris Pa")
    special = run([TURN_ID] * 20, sizes=sizes, stop=TURN, min_tokens=10)
    assert special == ("", 11, "stop", TURN)


def test_min_tokens_holds_nothing_back_before() -> None:
    output = OutputText(TOKENIZER, SamplingParams(stop=("ab",), min_tokens=2), [])
    assert output.add(encode("a")).text == "a"
    assert output.add(encode("a")).text == "a"
    assert output.add(encode("b")).text == "b"
    assert output.add(encode("a")).text == ""


def test_without_detokenizing() -> None:
    assert run(encode("one"), detokenize=False) == ("", len(encode("one")), "length", None)


def test_a_prompt_ends_within_a_word_or_a_character() -> None:
    ids = encode("日本")
    assert run(ids[1:], prompt=ids[:1])[0] == "日本"
    prefixed = sentencepiece_tokenizer(add_dummy_prefix=True)
    word = prefixed.encode("dog", add_special_tokens=False)
    assert run(word, tokenizer=prefixed, prompt=word)[0] == " dog"


tokens = st.lists(
    st.integers(0, TOKENIZER.vocab_size - 1)
    | st.sampled_from([*encode("ab ab日P Paris"), TURN_ID]),
    max_size=20,
)


@given(
    ids=tokens,
    stops=st.lists(
        st.sampled_from(["a", "ab", "b a", " P", "ris", "日", TURN, "\ufffd", "aab"]), max_size=3
    ),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    min_tokens=st.integers(0, 12),
    skip=st.booleans(),
    include=st.booleans(),
    finish=st.sampled_from(["length", "stop", "abort"]),
)
@settings(deadline=None, max_examples=500)
def test_chunks_do_not_matter(
    ids: list[int],
    stops: list[str],
    sizes: list[int],
    min_tokens: int,
    skip: bool,
    include: bool,
    finish: str,
) -> None:
    """Streamed as it comes, in any chunks, or all at once: the same text, count and reasons."""
    if finish == "stop" and not ids:
        ids = [END_ID]
    params: dict[str, Any] = {
        "stop": stops,
        "min_tokens": min_tokens,
        "skip_special_tokens": skip,
        "include_stop_str_in_output": include,
    }
    whole = run(ids, finish, sizes=[max(len(ids), 1)], **params)
    assert run(ids, finish, sizes=sizes, **params) == whole
    assert run(ids, finish, sizes=[1], **params) == whole
    assert whole.num_tokens <= len(ids)
    if isinstance(whole.stop_reason, str):
        assert whole.num_tokens > min_tokens or whole.stop_reason == "\ufffd"
        if whole.stop_reason != TURN:
            assert whole.text.endswith(whole.stop_reason) or not include
    elif not stops:
        kept = ids[:-1] if finish == "stop" and not include else ids
        assert whole.text == TOKENIZER.decode(kept, skip)


@given(ids=tokens, stop=st.text("ab P日🎉", min_size=1, max_size=4), data=st.data())
@settings(deadline=None, max_examples=500)
def test_equals_a_plain_search_in_the_text(ids: list[int], stop: str, data: st.DataObject) -> None:
    text = TOKENIZER.decode(ids)
    found = run(ids, sizes=data.draw(st.lists(st.integers(1, 6), min_size=1)), stop=stop)
    if stop in text:
        assert found.text == text[: text.index(stop)]
        assert (found.finish_reason, found.stop_reason) == ("stop", stop)
        # The token that completed it is the last that counts.
        assert stop in TOKENIZER.decode(ids[: found.num_tokens])
        assert stop not in TOKENIZER.decode(ids[: found.num_tokens - 1])
    else:
        assert found == (text, len(ids), "length", None)


def test_params_are_taken_as_vllm_gives_them() -> None:
    params = SamplingParams(stop=("ab",), min_tokens=1, max_tokens=4)
    for changed in (params, replace(params, detokenize=True)):
        assert OutputText(TOKENIZER, changed, []).add(encode("x")).text == "x"
