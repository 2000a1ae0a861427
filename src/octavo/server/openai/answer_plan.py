"""What a chat request wants of the answer's parts: tool calls, reasoning, and the grammar that both may need."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from octavo.config import ServerConfig
from octavo.core.sampling_params import SamplingParams
from octavo.core.structured_outputs import StructuredOutputsParams
from octavo.errors import InvalidParameterError, UnsupportedParameterError, UserError
from octavo.server.openai.requests import ChatRequest
from octavo.server.openai.structured_outputs import form_field, naming_field
from octavo.text.answer.parser import AnswerFormat, AnswerParser, answer_format
from octavo.text.answer.parts import Content, Part, Reasoning
from octavo.text.answer.tools import Tool, calls_grammar, tools_of
from octavo.text.chat_template import ChatTemplate
from octavo.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The calls that an answer may or must consist of."""

    tools: tuple[Tool, ...]
    must_call: bool
    """The answer consists of calls, of one of these tools."""
    several: bool
    """More than one call may come."""


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """How the answers to one request are made and read."""

    form: AnswerFormat
    choice: ToolChoice | None
    """None: nothing is called."""
    prompt: str
    includes_reasoning: bool

    @property
    def is_plain(self) -> bool:
        """Whether the text of an answer is content as it stands."""
        return self.choice is None and self.form.reasoning is None

    def parser(self) -> AnswerParser | None:
        """A reader for one choice; None if its text is content as it stands."""
        if self.is_plain:
            return None
        names = None if self.choice is None else frozenset(t.name for t in self.choice.tools)
        max_calls = 1 if self.choice is not None and not self.choice.several else None
        return AnswerParser(self.form, tool_names=names, prompt=self.prompt, max_calls=max_calls)

    def new_call_id(self) -> str:
        """A fresh id of a tool call."""
        assert self.form.tools is not None
        return self.form.tools.new_call_id()

    def constrained(self, params: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
        """The parameters with the grammar of calls, if they must come, and with the marks of the parts in the text."""
        if self.is_plain:
            return params
        changes: dict[str, Any] = {}
        if any(_is_special(mark, tokenizer) for mark in self.form.marks):
            changes["skip_special_tokens"] = False
        grammar = params.structured_outputs
        if self.choice is not None and self._binds(self.choice):
            grammar = self._calls_grammar(self.choice, tokenizer)
        if grammar is not None:
            changes["structured_outputs"] = self._after_thoughts(grammar, tokenizer)
        return replace(params, **changes) if changes else params

    @property
    def bound_tools(self) -> list[Tool]:
        """Those whose schemas are part of the grammar, if calls have one."""
        if self.choice is None or not self._binds(self.choice):
            return []
        return [tool for tool in self.choice.tools if tool.strict or self.choice.must_call]

    def _calls_grammar(self, choice: ToolChoice, tokenizer: Tokenizer) -> StructuredOutputsParams:
        assert self.form.tools is not None
        grammar = calls_grammar(
            choice.tools,
            self.form.tools,
            tokenizer,
            several=choice.several,
            may_speak=not choice.must_call,
        )
        try:
            return StructuredOutputsParams(grammar=grammar)
        except UserError as error:
            raise naming_field(error, "tools") from error

    def _binds(self, choice: ToolChoice) -> bool:
        """Whether a grammar is needed. A format without a mark cannot tell a call from other JSON beforehand."""
        has_mark = self.form.tools is not None and self.form.tools.start != ""
        return choice.must_call or (has_mark and any(tool.strict for tool in choice.tools))

    def _after_thoughts(
        self, grammar: StructuredOutputsParams, tokenizer: Tokenizer
    ) -> StructuredOutputsParams:
        """The grammar of what is said, free for what is thought before."""
        thought = self.form.reasoning
        if thought is None or _is_special(thought.end, tokenizer):
            return grammar
        start = None if thought.begins_inside(self.prompt) else thought.start
        return replace(grammar, thought_end=thought.end, thought_start=start)


class PartReader:
    """Reads one choice of any plan, without thoughts that are not to be shown."""

    def __init__(self, plan: AnswerPlan) -> None:
        self._parser = plan.parser()
        self._includes_reasoning = plan.includes_reasoning

    def add(self, text: str, *, is_last: bool) -> list[Part]:
        """The parts that more text adds; with `is_last` all that was held back too."""
        if self._parser is None:
            return [Content(text)] if text else []
        parts = self._parser.add(text, is_last=is_last)
        if self._includes_reasoning:
            return parts
        return [part for part in parts if not isinstance(part, Reasoning)]


def plan_answer(
    body: ChatRequest,
    choice: ToolChoice | None,
    template: ChatTemplate,
    config: ServerConfig,
    prompt: str,
) -> AnswerPlan:
    """The plan for a request whose prompt is rendered. Raises UnsupportedParameterError."""
    form = answer_format(template.tool_source, config.tool_call_parser, config.reasoning_parser)
    if choice is not None and form.tools is None:
        raise UnsupportedParameterError(
            "tools: the calls of this model cannot be read; start the server with --tool-call-parser, "
            "or send tool_choice none",
            parameter="tools",
        )
    return AnswerPlan(form, choice, prompt, body.include_reasoning is not False)


def tool_choice_of(
    body: ChatRequest, schema_field: str = "function.parameters"
) -> ToolChoice | None:
    """What may be called; None: nothing. Tools that may not be called only reach the template.

    `schema_field`: where each tool has its schema in the request that the user sent.
    Raises InvalidParameterError, UnsupportedParameterError.
    """
    given = body.tool_choice
    if not body.tools:
        if given not in (None, "none"):
            raise InvalidParameterError(
                "tool_choice needs tools", parameter="tool_choice", value=given
            )
        return None
    tools = tools_of(body.tools, schema_field)
    if given == "none":
        return None
    if body.use_beam_search:
        raise UnsupportedParameterError(
            "use_beam_search is not supported with tools; send tool_choice none",
            parameter="use_beam_search",
        )
    if (form := form_field(body)) is not None:
        raise UnsupportedParameterError(
            f"{form} is not supported with tools: an answer is either; send tool_choice none",
            parameter=form,
        )
    several = body.parallel_tool_calls is not False
    if given not in (None, "auto", "required"):
        return ToolChoice((_named(given, tools),), must_call=True, several=False)
    return ToolChoice(tuple(tools), must_call=given == "required", several=several)


def _named(choice: str | Mapping[str, Any], tools: list[Tool]) -> Tool:
    name: Any = choice
    kind = "function"
    if isinstance(choice, Mapping):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        kind = choice.get("type", kind)  # clients of TGI leave it out
    found = next((tool for tool in tools if tool.name == name), None)
    if kind != "function" or found is None:
        raise InvalidParameterError(
            "tool_choice must be none, auto, required or name one of the tools, as in "
            '{"type": "function", "function": {"name": ...}}; '
            f"given: {str(choice)[:80]}",
            parameter="tool_choice",
            value=choice,
        )
    return found


def _is_special(mark: str, tokenizer: Tokenizer) -> bool:
    token_id = tokenizer.token_id(mark)
    return token_id is not None and tokenizer.is_special(token_id)
