"""Splitting what a model thinks from what it says."""

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.text.answer.parts import Content, Reasoning, held_back


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """How a family of models marks its thoughts, at the beginning of an answer."""

    start: str
    end: str
    is_begun: bool = False
    """Answers are taken to begin inside the thoughts, whatever the prompt ends with."""

    def begins_inside(self, prompt: str) -> bool:
        """Whether the answer to a prompt begins inside the thoughts: templates may print the mark themselves."""
        return prompt.rstrip().endswith(self.start) or (
            self.is_begun and not prompt.rstrip().endswith(self.end)
        )


REASONING_FORMATS: Mapping[str, ReasoningFormat] = {
    "deepseek_r1": ReasoningFormat("<think>", "</think>", is_begun=True),
    "qwen3": ReasoningFormat("<think>", "</think>"),
    "mistral": ReasoningFormat("[THINK]", "[/THINK]"),
}
"""By the names of vLLM's reasoning parsers."""


def reasoning_format_of(template: str) -> ReasoningFormat | None:
    """The format that a chat template speaks of, if it does."""
    for form in (REASONING_FORMATS["qwen3"], REASONING_FORMATS["mistral"]):
        if form.end in template:
            return form
    return None


class ReasoningSplitter:
    """Splits the text of one answer. The pieces joined are the same however the text is cut.

    Whitespace around the marks belongs to neither side.
    """

    def __init__(self, form: ReasoningFormat, *, inside: bool) -> None:
        self._form = form
        self._mark: str | None = form.end if inside else form.start
        """The next mark; None: it is behind us, or there is none."""
        self._inside = inside
        self._at_start = True
        self._buffer = ""

    def add(self, text: str) -> list[Content | Reasoning]:
        """What more text adds."""
        parts: list[Content | Reasoning] = []
        self._buffer += text
        if not self._inside and self._mark is not None and not self._find_start():
            return parts
        if self._inside:
            self._think(parts)
        if not self._inside and self._mark is None:
            self._emit(parts, self._buffer, Content)
            self._buffer = ""
        return parts

    def finish(self) -> list[Content | Reasoning]:
        """What was held back."""
        parts: list[Content | Reasoning] = []
        self._at_start = False
        self._emit(parts, self._buffer, Reasoning if self._inside else Content)
        self._buffer = ""
        return parts

    def _find_start(self) -> bool:
        """Whether it is known if the answer begins with thoughts."""
        begin = self._buffer.lstrip()
        if begin.startswith(self._form.start):
            self._buffer = begin[len(self._form.start) :]
            self._inside, self._mark = True, self._form.end
            return True
        if self._form.start.startswith(begin):
            return False  # too short to tell
        self._mark, self._at_start = None, False
        return True

    def _think(self, parts: list[Content | Reasoning]) -> None:
        before, mark, after = self._buffer.partition(self._form.end)
        if mark:
            self._emit(parts, before.rstrip(), Reasoning)
            self._inside, self._mark, self._at_start, self._buffer = False, None, True, after
            return
        count = held_back(before, self._form.end)
        # Whitespace may turn out to stand before the end mark.
        ready = before[: len(before) - count].rstrip()
        self._emit(parts, ready, Reasoning)
        self._buffer = before[len(ready) :]

    def _emit(
        self,
        parts: list[Content | Reasoning],
        text: str,
        kind: type[Content] | type[Reasoning],
    ) -> None:
        if self._at_start:
            text = text.lstrip()
            self._at_start = not text
        if text:
            parts.append(kind(text))
