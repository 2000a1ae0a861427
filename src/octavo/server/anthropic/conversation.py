"""A conversation of the Messages API in the terms of chat: content blocks become messages, tools become functions."""

import json
from typing import Any

from octavo.errors import InvalidParameterError, UnsupportedParameterError
from octavo.server.anthropic.requests import Conversation, MessagesRequest, Thinking, ToolChoice
from octavo.server.openai.common_fields import TermsFields
from octavo.server.openai.requests import ChatRequest

ROLES = ("user", "assistant", "system")
_TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_request(body: Conversation) -> ChatRequest:
    """The same request to chat. Raises InvalidParameterError, UnsupportedParameterError."""
    messages = _system(body.system)
    for i, message in enumerate(body.messages):
        messages += _turn(message, f"messages[{i}]")
    fields: dict[str, Any] = {
        "model": body.model,
        "messages": messages,
        # An answer goes on where the assistant's last turn ends.
        "continue_final_message": messages[-1]["role"] == "assistant"
        and not messages[-1].get("tool_calls"),
        "tools": [_function(tool, i) for i, tool in enumerate(body.tools)] if body.tools else None,
        "tool_choice": _tool_choice(body.tool_choice),
    }
    if body.output_config is not None:
        fields["response_format"] = _response_format(body.output_config.format)
        fields["reasoning_effort"] = body.output_config.effort
    if body.tool_choice is not None and body.tool_choice.disable_parallel_tool_use:
        fields["parallel_tool_calls"] = False
    if isinstance(body, MessagesRequest):
        fields.update(
            max_completion_tokens=body.max_tokens,
            stop=body.stop_sequences,
            stream=body.stream,
            temperature=body.temperature,
            top_p=body.top_p,
            top_k=body.top_k,
            include_reasoning=_shows_thoughts(body.thinking),
            request_id=body.request_id,
            **_terms(body),
        )
    return ChatRequest.model_validate(fields)


def _terms(body: MessagesRequest) -> dict[str, Any]:
    terms = {name: getattr(body, name) for name in TermsFields.model_fields}
    if body.user is None and body.metadata is not None:
        terms["user"] = body.metadata.user_id
    return terms


def _system(system: str | list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    if not system:
        return []
    if isinstance(system, str):
        return [{"role": "system", "content": system}]
    texts = [_text(block, f"system[{i}]") for i, block in enumerate(system)]
    return [{"role": "system", "content": "\n".join(texts)}]


def _turn(message: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """One message: what the tools returned first, as messages of their own, then what was said."""
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise InvalidParameterError(
            f"{where}.role must be one of {', '.join(ROLES)}; given: {str(role)[:40]!r}",
            parameter="messages",
            value=role,
        )
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if not isinstance(content, list):
        raise InvalidParameterError(
            f"{where}.content must be a string or a list of blocks",
            parameter="messages",
            value=content,
        )
    results: list[dict[str, Any]] = []
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    reasoning: list[str] = []
    for i, block in enumerate(content):
        place = f"{where}.content[{i}]"
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_result" and role == "user":
            results.append(_tool_result(block, place))
        elif kind == "tool_use" and role == "assistant":
            calls.append(_tool_call(block, place))
        elif kind == "thinking" and role == "assistant":
            reasoning.append(_string(block, "thinking", place))
        else:
            texts.append(_text(block, place))
    if not texts and not calls and not reasoning and results:
        return results
    turn: dict[str, Any] = {"role": role, "content": "\n".join(texts)}
    if calls:
        turn["tool_calls"] = calls
    if reasoning:
        turn["reasoning_content"] = "\n".join(reasoning)
    return [*results, turn]


def _text(block: object, where: str) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(kind, str):
        raise InvalidParameterError(
            f"{where} must be a block with a type", parameter="messages", value=block
        )
    if kind != "text":
        raise UnsupportedParameterError(
            f"{where}: blocks of type {kind[:40]!r} are not supported here, only text",
            parameter="messages",
            value=kind,
        )
    return _string(block, "text", where)


def _tool_result(block: dict[str, Any], where: str) -> dict[str, Any]:
    content = block.get("content") or ""
    if isinstance(content, list):
        content = "\n".join(_text(part, f"{where}.content[{i}]") for i, part in enumerate(content))
    elif not isinstance(content, str):
        raise InvalidParameterError(
            f"{where}.content must be a string or a list of blocks",
            parameter="messages",
            value=content,
        )
    return {
        "role": "tool",
        "tool_call_id": _string(block, "tool_use_id", where),
        # Templates know no failed results.
        "content": f"Error: {content}" if block.get("is_error") is True else content,
    }


def _tool_call(block: dict[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(block.get("input"), dict):
        raise InvalidParameterError(
            f"{where}.input must be an object", parameter="messages", value=block.get("input")
        )
    function = {"name": _string(block, "name", where), "arguments": json.dumps(block["input"])}
    return {"id": _string(block, "id", where), "type": "function", "function": function}


def _function(tool: dict[str, Any], position: int) -> dict[str, Any]:
    where = f"tools[{position}]"
    if tool.get("type") not in (None, "custom"):
        raise UnsupportedParameterError(
            f"{where}: this server runs no tools; type {str(tool['type'])[:40]!r} is not supported",
            parameter="tools",
            value=tool["type"],
        )
    if not isinstance(tool.get("input_schema"), dict):
        raise InvalidParameterError(
            f"{where}.input_schema must be an object",
            parameter="tools",
            value=tool.get("input_schema"),
        )
    function: dict[str, Any] = {
        "name": _string(tool, "name", where, "tools"),
        "parameters": tool["input_schema"],
    }
    if "description" in tool:
        function["description"] = _string(tool, "description", where, "tools")
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def _tool_choice(choice: ToolChoice | None) -> str | dict[str, Any] | None:
    if choice is None:
        return None
    if choice.type == "tool" and choice.name:
        return {"type": "function", "function": {"name": choice.name}}
    if choice.type not in _TOOL_CHOICES:
        raise InvalidParameterError(
            "tool_choice must be auto, any, none, or tool with a name; "
            f"given: {choice.type[:40]!r}",
            parameter="tool_choice",
            value=choice.type,
        )
    return _TOOL_CHOICES[choice.type]


def _shows_thoughts(thinking: Thinking | None) -> bool:
    if thinking is None or thinking.type == "disabled":
        return False
    if thinking.type != "adaptive":
        raise UnsupportedParameterError(
            "thinking must have the type adaptive or disabled: thinking budgets are not available; "
            f"given: {thinking.type[:40]!r}",
            parameter="thinking",
            value=thinking.type,
        )
    if thinking.display not in (None, "summarized", "omitted"):
        raise InvalidParameterError(
            f"thinking.display must be summarized or omitted; given: {thinking.display[:40]!r}",
            parameter="thinking.display",
            value=thinking.display,
        )
    return thinking.display != "omitted"


def _response_format(form: dict[str, Any] | None) -> dict[str, Any] | None:
    if form is None:
        return None
    if form.get("type") != "json_schema" or not isinstance(form.get("schema"), dict):
        raise InvalidParameterError(
            "output_config.format must have the type json_schema and a schema",
            parameter="output_config.format",
            value=form.get("type"),
        )
    schema = {"name": "answer", "schema": form["schema"], "strict": True}
    return {"type": "json_schema", "json_schema": schema}


def _string(block: dict[str, Any], name: str, where: str, parameter: str = "messages") -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise InvalidParameterError(
            f"{where}.{name} must be a string", parameter=parameter, value=value
        )
    return value
