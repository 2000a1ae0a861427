"""Parts of answers, joined where they are of one kind; and texts cut at random."""

from collections.abc import Iterable

from hypothesis import strategies as st

from octavo.text.answer.parts import CallArguments, Content, Part, Reasoning


def joined(parts: Iterable[Part]) -> list[Part]:
    """Neighbours of one kind as one part."""
    result: list[Part] = []
    for part in parts:
        last = result[-1] if result else None
        if isinstance(part, Content) and isinstance(last, Content):
            result[-1] = Content(last.text + part.text)
        elif isinstance(part, Reasoning) and isinstance(last, Reasoning):
            result[-1] = Reasoning(last.text + part.text)
        elif (
            isinstance(part, CallArguments)
            and isinstance(last, CallArguments)
            and part.index == last.index
        ):
            result[-1] = CallArguments(part.index, last.text + part.text)
        else:
            result.append(part)
    return result


def pieces_of(text: str) -> st.SearchStrategy[list[str]]:
    """Ways to cut a text."""
    return st.lists(st.integers(0, len(text))).map(
        lambda cuts: [
            text[a:b] for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), len(text)], strict=True)
        ]
    )
