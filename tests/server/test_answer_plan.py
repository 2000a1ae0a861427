"""What a chat request's tools, form and model come to: who reads the answer, and the grammar that holds it."""

from typing import Any

import pytest

from octavo.config import ServerConfig
from octavo.core.sampling_params import SamplingParams
from octavo.core.structured_outputs import StructuredOutputsParams
from octavo.errors import UnsupportedParameterError
from octavo.server.openai.answer_plan import AnswerPlan, plan_answer, tool_choice_of
from octavo.server.openai.fields import parse_request
from octavo.server.openai.known_fields import CHAT_FIELDS
from octavo.server.openai.requests import ChatRequest
from octavo.text.chat_template import ChatTemplate
from octavo.text.tokenizer import Tokenizer, load_tokenizer
from support.text_model import text_model_folder

TOOLS = [{"type": "function", "function": {"name": "f"}}]
STRICT = [{"type": "function", "function": {"name": "f", "strict": True}}]
FORM = StructuredOutputsParams(regex="a")
THINKS = "{{ messages }} {{ tools }} <tool_call> <think></think>"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(text_model_folder())


def plan(
    template: str, prompt: str = "...", config: ServerConfig | None = None, **fields: Any
) -> AnswerPlan:
    messages = [{"role": "user", "content": "x"}]
    body, _ = parse_request(ChatRequest, {"messages": messages, **fields}, CHAT_FIELDS, strict=True)
    compiled = ChatTemplate(template, bos_token=None, eos_token=None)
    return plan_answer(body, tool_choice_of(body), compiled, config or ServerConfig(), prompt)


def test_plain_answers_are_not_read_at_all(tokenizer: Tokenizer) -> None:
    plain = plan("{{ messages }}")
    params = SamplingParams(structured_outputs=FORM)
    assert plain.parser() is None and plain.constrained(params, tokenizer) is params
    assert plan("{{ messages }}", tools=TOOLS, tool_choice="none").parser() is None
    assert plan("{{ messages }}", tools=TOOLS).parser() is not None
    assert plan(THINKS).parser() is not None
    assert plan(THINKS, config=ServerConfig(reasoning_parser="none")).parser() is None


def test_a_form_begins_after_the_thoughts(tokenizer: Tokenizer) -> None:
    def form_of(prompt: str) -> StructuredOutputsParams:
        bound = plan(THINKS, prompt).constrained(SamplingParams(structured_outputs=FORM), tokenizer)
        assert bound.structured_outputs is not None
        return bound.structured_outputs

    free, inside = form_of("assistant:"), form_of("assistant:<think>\n")
    assert (free.thought_start, free.thought_end) == ("<think>", "</think>")
    assert (inside.thought_start, inside.thought_end) == (None, "</think>")
    assert free.regex == "a"


@pytest.mark.parametrize(
    ("fields", "is_bound"),
    [
        ({"tools": TOOLS}, False),
        ({"tools": TOOLS, "tool_choice": "required"}, True),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}}, True),
        ({"tools": STRICT}, True),
        ({"tools": STRICT, "tool_choice": "none"}, False),
    ],
)
def test_calls_are_bound_where_they_must_be(
    tokenizer: Tokenizer, fields: dict[str, Any], is_bound: bool
) -> None:
    bound = plan("{{ messages }}", **fields).constrained(SamplingParams(), tokenizer)
    assert (bound.structured_outputs is not None) == is_bound


def test_marks_that_are_special_tokens_are_shown(tokenizer: Tokenizer) -> None:
    class WithMark(Tokenizer):
        def __init__(self) -> None:  # the marks' part of a tokenizer
            pass

        def token_id(self, token: str) -> int | None:
            return 5 if token == "[TOOL_CALLS]" else None

        def is_special(self, token_id: int) -> bool:
            return token_id == 5

    mistral = plan("[TOOL_CALLS] {{ tools }}", tools=TOOLS, tool_choice="required")
    assert mistral.constrained(SamplingParams(), tokenizer).skip_special_tokens
    shown = mistral.constrained(SamplingParams(), WithMark())
    assert not shown.skip_special_tokens and shown.structured_outputs is not None
    assert "start: <[5]> tail" in str(shown.structured_outputs.grammar)


def test_calls_of_an_unknown_format_are_refused() -> None:
    with pytest.raises(UnsupportedParameterError, match="--tool-call-parser"):
        plan("{{ messages }} {{ tools }}", tools=TOOLS)
    assert plan("{{ messages }} {{ tools }}", tools=TOOLS, tool_choice="none").choice is None
    config = ServerConfig(tool_call_parser="hermes")
    assert plan("{{ messages }} {{ tools }}", config=config, tools=TOOLS).parser() is not None
