"""The parts of an answer: what it is made of in a model's family, and reading it as its text comes.

Every interface that has tool calls or reasoning uses this, and decides only how it writes them.
"""

from collections.abc import Collection
from dataclasses import dataclass

from octavo.text.answer.parts import Content, Part
from octavo.text.answer.reasoning import (
    REASONING_FORMATS,
    ReasoningFormat,
    ReasoningSplitter,
    reasoning_format_of,
)
from octavo.text.answer.tool_formats import TOOL_FORMATS, ToolFormat, tool_format_of
from octavo.text.answer.tool_parser import ToolParser

NO_PARSER = "none"


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """How the answers of a model are written."""

    tools: ToolFormat | None
    """None: its calls cannot be read."""
    reasoning: ReasoningFormat | None
    """None: it does not think aloud, or its thoughts are to stay in the content."""

    @property
    def marks(self) -> tuple[str, ...]:
        """What sets the parts off. Where one is a special token, the text has to show special tokens."""
        tool, thought = self.tools, self.reasoning
        marks = (
            () if tool is None else (tool.start, tool.end, tool.optional_start, tool.arguments_mark)
        )
        return tuple(
            filter(None, marks + (() if thought is None else (thought.start, thought.end)))
        )


def answer_format(
    template: str, tool_parser: str | None, reasoning_parser: str | None
) -> AnswerFormat:
    """The format that a chat template shows, or that was chosen by name."""
    tools = tool_format_of(template) if tool_parser is None else TOOL_FORMATS[tool_parser]
    if reasoning_parser == NO_PARSER:
        return AnswerFormat(tools, None)
    if reasoning_parser is not None:
        return AnswerFormat(tools, REASONING_FORMATS[reasoning_parser])
    return AnswerFormat(tools, reasoning_format_of(template))


class AnswerParser:
    """Reads one answer. The parts joined are the same however the text is cut."""

    def __init__(
        self,
        form: AnswerFormat,
        *,
        tool_names: Collection[str] | None,
        prompt: str,
        max_calls: int | None = None,
    ) -> None:
        """`tool_names`: None if the answer is not to be searched for calls; `prompt`: its end tells whether the
        answer begins inside the model's thoughts.
        """
        self._splitter: ReasoningSplitter | None = None
        if form.reasoning is not None:
            self._splitter = ReasoningSplitter(
                form.reasoning, inside=form.reasoning.begins_inside(prompt)
            )
        self._tools: ToolParser | None = None
        if tool_names is not None and form.tools is not None:
            self._tools = ToolParser(form.tools, tool_names, max_calls=max_calls)

    def add(self, text: str, *, is_last: bool = False) -> list[Part]:
        """The parts that more text adds; with `is_last` all that was held back too."""
        split: list[Part] = [Content(text)]
        if self._splitter is not None:
            split = [*self._splitter.add(text)]
            if is_last:
                split += self._splitter.finish()
        if self._tools is None:
            return [part for part in split if part != Content("")]
        parts: list[Part] = []
        for part in split:
            parts += self._tools.add(part.text) if isinstance(part, Content) else [part]
        if is_last:
            parts += self._tools.finish()
        return parts
