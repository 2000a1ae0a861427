"""Stop strings in pieces of text: the same as a plain search in the whole."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from octavo.text.stop_strings import StopStrings

LETTERS = "aab🎉"
words = st.text(LETTERS, min_size=1, max_size=6)


def plain_search(text: str, stops: list[str], *, include: bool) -> tuple[str, str | None]:
    """The first stop string to be complete, of those that end together the longest."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text.endswith(stop, 0, end)]
        if found:
            stop = max(found, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


def search(pieces: list[str], stops: list[str], *, include: bool = False) -> tuple[str, str | None]:
    stop_strings = StopStrings(stops, include_in_text=include)
    shown = ""
    for piece in pieces:
        text, stop = stop_strings.add(piece)
        shown += text
        if stop is not None:
            return shown, stop
    return shown + stop_strings.finish(), None


@given(
    pieces=st.lists(st.text(LETTERS, max_size=4), max_size=12),
    stops=st.lists(words, min_size=1, max_size=4),
    include=st.booleans(),
)
@settings(deadline=None, max_examples=1000)
@example(pieces=["aab", "aaab"], stops=["aabaab", "baaab"], include=False)
@example(pieces=["ab"], stops=["b", "ab"], include=False)
def test_equals_a_plain_search(pieces: list[str], stops: list[str], include: bool) -> None:
    expected = plain_search("".join(pieces), stops, include=include)
    assert search(pieces, stops, include=include) == expected
    assert search(list("".join(pieces)), stops, include=include) == expected


@given(
    pieces=st.lists(st.text(LETTERS, max_size=4), max_size=12), stops=st.lists(words, min_size=1)
)
@settings(deadline=None, max_examples=300)
def test_holds_back_no_more_than_it_must(pieces: list[str], stops: list[str]) -> None:
    """What is held is the beginning of some stop string, and the longest such end of the text."""
    stop_strings = StopStrings(stops, include_in_text=False)
    whole = shown = ""
    for piece in pieces:
        text, stop = stop_strings.add(piece)
        if stop is not None:
            return
        whole, shown = whole + piece, shown + text
        begun = [
            n
            for n in range(len(whole) + 1)
            if any(s.startswith(whole[len(whole) - n :]) for s in stops)
        ]
        assert len(whole) - len(shown) == max(begun)


def test_the_first_to_be_complete_wins() -> None:
    """Not the first to begin: nobody can know yet whether that one will ever be complete."""
    assert search(["xabcde"], ["abcde", "bcd"]) == ("xa", "bcd")
    assert search(["xabcde"], ["abcde", "bcx"]) == ("x", "abcde")
    assert search(["xab", "cxe"], ["abcde", "bcd"]) == ("xabcxe", None)


def test_included_text_is_not_held_back() -> None:
    stop_strings = StopStrings(["\n\n"], include_in_text=True)
    assert stop_strings.add("a\n") == ("a\n", None)
    assert stop_strings.add("\nb") == ("\n", "\n\n")


def test_a_long_stop_string_costs_little() -> None:
    """A megabyte of nearly matching text and a stop string of 100,000 characters take no quadratic time."""
    stop = "a" * 100_000 + "b"
    stop_strings = StopStrings([stop], include_in_text=False)
    shown = 0
    for _ in range(20_000):
        text, found = stop_strings.add("a" * 50)
        shown += len(text)
        assert found is None
    assert shown == 1_000_000 - 100_000
    text, found = stop_strings.add("bc")
    assert (text, found) == ("", stop)


@pytest.mark.parametrize("pieces", [[""], [], ["", "a", ""]])
def test_empty_pieces(pieces: list[str]) -> None:
    assert search(pieces, ["b"]) == ("".join(pieces), None)
