"""The input of a response in the terms of chat: items become messages, tools become functions."""

from collections.abc import Sequence
from typing import Any

from octavo.errors import InvalidParameterError, UnsupportedParameterError
from octavo.server.openai.requests import ChatRequest
from octavo.server.openai.responses.request import (
    AS_IN_CHAT,
    INCLUDABLE,
    LOGPROBS,
    ResponsesRequest,
)

ROLES = ("user", "assistant", "system", "developer")


def input_messages(body: ResponsesRequest) -> list[dict[str, Any]]:
    """What the request adds to the conversation. Raises InvalidParameterError, UnsupportedParameterError."""
    if isinstance(body.input, str):
        return [{"role": "user", "content": body.input}]
    return item_messages(body.input, "input")


def item_messages(items: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Items, of an input or an output, as messages. Raises InvalidParameterError, UnsupportedParameterError."""
    messages: list[dict[str, Any]] = []
    for i, item in enumerate(items):
        _add_item(messages, item, f"{name}[{i}]")
    return messages


def chat_request(body: ResponsesRequest, messages: Sequence[dict[str, Any]]) -> ChatRequest:
    """A request to chat that gives the same answer. `messages`: the conversation so far, without instructions.

    Raises InvalidParameterError, UnsupportedParameterError.
    """
    fields: dict[str, Any] = {name: getattr(body, name) for name in AS_IN_CHAT}
    instructions = body.instructions
    system = [{"role": "system", "content": instructions}] if instructions else []
    fields["messages"] = [*system, *messages]
    fields["max_completion_tokens"] = body.max_output_tokens
    if wants_logprobs(body):
        fields["logprobs"] = True
        fields["top_logprobs"] = body.top_logprobs
    if body.reasoning is not None:
        _check_reasoning(body)
        fields["reasoning_effort"] = body.reasoning.effort
    if body.text is not None:
        fields["response_format"] = _response_format(body)
    if body.tools:
        fields["tools"] = [_function(tool, i) for i, tool in enumerate(body.tools)]
    fields["tool_choice"] = _tool_choice(body.tool_choice)
    return ChatRequest.model_validate(fields)


def wants_logprobs(body: ResponsesRequest) -> bool:
    """Whether the answer is to have log-probabilities. Raises for what cannot be included."""
    include = body.include or []
    for name in include:
        if name not in INCLUDABLE:
            raise UnsupportedParameterError(
                f"include: {name[:80]!r} is not available, only {', '.join(INCLUDABLE)}",
                parameter="include",
                value=name,
            )
    return LOGPROBS in include or bool(body.top_logprobs)


def _add_item(messages: list[dict[str, Any]], item: dict[str, Any], where: str) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        role = item.get("role")
        if role not in ROLES:
            raise InvalidParameterError(
                f"{where}.role must be one of {', '.join(ROLES)}; given: {str(role)[:40]!r}",
                parameter="input",
                value=role,
            )
        if "content" not in item:
            raise InvalidParameterError(f"{where} must have a content", parameter="input")
        if role == "assistant" and messages and _is_thought(messages[-1]):
            messages[-1]["content"] = item["content"]
        else:
            messages.append({"role": role, "content": item["content"]})
    elif kind == "function_call":
        _add_call(messages, item, where)
    elif kind == "function_call_output":
        message = {"role": "tool", "tool_call_id": _string(item, "call_id", where)}
        messages.append({**message, "content": item.get("output")})
    elif kind == "reasoning":
        thoughts = {"content": None, "reasoning_content": _thoughts(item, where)}
        messages.append({"role": "assistant", **thoughts})
    else:
        raise UnsupportedParameterError(
            f"{where}: items of type {str(kind)[:40]!r} are not supported",
            parameter="input",
            value=kind,
        )


def _thoughts(item: dict[str, Any], where: str) -> str:
    """The text of a reasoning item; where it was left out, that of its summary."""
    parts = item.get("content") or item.get("summary") or []
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise InvalidParameterError(
            f"{where}.content must be a list of parts", parameter="input", value=parts
        )
    return "\n".join(str(part.get("text", "")) for part in parts)


def _is_thought(message: dict[str, Any]) -> bool:
    """Whether a message has nothing yet but what was thought before it."""
    said = message["content"] is not None or "tool_calls" in message
    return "reasoning_content" in message and not said


def _add_call(messages: list[dict[str, Any]], item: dict[str, Any], where: str) -> None:
    """Calls that follow one another, or a text of the assistant, are one message."""
    function = {name: _string(item, name, where) for name in ("name", "arguments")}
    call = {"id": _string(item, "call_id", where), "type": "function", "function": function}
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    messages[-1].setdefault("tool_calls", []).append(call)


def _function(tool: dict[str, Any], position: int) -> dict[str, Any]:
    where = f"tools[{position}]"
    if tool.get("type") != "function":
        raise UnsupportedParameterError(
            f"{where}: this server runs no tools; only the type function is supported, "
            f"given: {str(tool.get('type'))[:40]!r}",
            parameter="tools",
            value=tool.get("type"),
        )
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {n: tool[n] for n in names if tool.get(n) is not None}}


def _tool_choice(choice: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") != "function":
        raise UnsupportedParameterError(
            "tool_choice must be none, auto, required, or a function with its name",
            parameter="tool_choice",
            value=choice.get("type"),
        )
    return {"type": "function", "function": {"name": _string(choice, "name", "tool_choice")}}


def _check_reasoning(body: ResponsesRequest) -> None:
    reasoning = body.reasoning
    assert reasoning is not None
    for name in ("summary", "generate_summary"):
        value = getattr(reasoning, name)
        if value not in (None, "auto"):
            raise UnsupportedParameterError(
                f"reasoning.{name} is not supported: reasoning is not summarized",
                parameter=f"reasoning.{name}",
                value=value,
            )


def _response_format(body: ResponsesRequest) -> dict[str, Any] | None:
    text = body.text
    assert text is not None
    if text.verbosity not in (None, "medium"):
        raise UnsupportedParameterError(
            "text.verbosity is not supported: this model has no levels of verbosity",
            parameter="text.verbosity",
            value=text.verbosity,
        )
    form = text.format
    if form is None:
        return None
    kind = _string(form, "type", "text.format")
    if kind != "json_schema":
        return {"type": kind}
    schema = {
        name: form[name] for name in ("name", "description", "schema", "strict") if name in form
    }
    return {"type": kind, "json_schema": schema}


def _string(item: dict[str, Any], name: str, where: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise InvalidParameterError(
            f"{where}.{name} must be a string", parameter=where.partition("[")[0], value=value
        )
    return value
