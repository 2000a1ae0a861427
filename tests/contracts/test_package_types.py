"""Requests against the types of the clients' packages: every field and every kind of item is taken or refused by name."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args, get_type_hints

import pytest
from anthropic import types as claude
from anthropic.types import message_count_tokens_params, message_create_params
from openai.types import (
    completion_create_params,
    embedding_create_params,
    responses,
    shared_params,
)
from openai.types.chat import (
    ChatCompletionStreamOptionsParam,
)
from openai.types.chat import (
    completion_create_params as chat_create_params,
)
from openai.types.responses import response_create_params, response_input_item_param
from openai.types.shared_params.response_format_json_schema import JSONSchema

from octavo.errors import UserError
from octavo.server.anthropic import block_fields
from octavo.server.anthropic import requests as anthropic
from octavo.server.anthropic.conversation import chat_request
from octavo.server.openai.embeddings.request import EMBEDDINGS_FIELDS, EmbeddingsRequest
from octavo.server.openai.fields import NO_OTHERS, KnownFields, ObjectFields, RequestBody
from octavo.server.openai.known_fields import CHAT_FIELDS, COMPLETION_FIELDS
from octavo.server.openai.requests import (
    ChatRequest,
    CompletionRequest,
    JsonSchemaFormat,
    ResponseFormat,
    StreamOptions,
)
from octavo.server.openai.responses import item_fields, request
from octavo.server.openai.responses.conversation import chat_request as chat_of_response
from octavo.server.openai.responses.conversation import item_messages

MODELS: list[tuple[Any, type[RequestBody], KnownFields]] = [
    (completion_create_params.CompletionCreateParamsBase, CompletionRequest, COMPLETION_FIELDS),
    (chat_create_params.CompletionCreateParamsBase, ChatRequest, CHAT_FIELDS),
    (ChatCompletionStreamOptionsParam, StreamOptions, NO_OTHERS),
    (shared_params.ResponseFormatJSONSchema, ResponseFormat, NO_OTHERS),
    (JSONSchema, JsonSchemaFormat, NO_OTHERS),
    (embedding_create_params.EmbeddingCreateParams, EmbeddingsRequest, EMBEDDINGS_FIELDS),
    (response_create_params.ResponseCreateParamsBase, request.ResponsesRequest, request.RESPONSES_FIELDS),
    (response_create_params.StreamOptions, request.ResponseStreamOptions, NO_OTHERS),
    (responses.ResponseTextConfigParam, request.TextConfig, NO_OTHERS),
    (shared_params.Reasoning, request.Reasoning, request.Reasoning.known),
    (message_create_params.MessageCreateParamsBase, anthropic.MessagesRequest, anthropic.MESSAGES_FIELDS),
    (message_count_tokens_params.MessageCountTokensParams, anthropic.CountTokensRequest, anthropic.COUNT_FIELDS),
    (claude.MetadataParam, anthropic.Metadata, NO_OTHERS),
    (claude.OutputConfigParam, anthropic.OutputConfig, NO_OTHERS),
    (claude.ToolChoiceToolParam, anthropic.ToolChoice, NO_OTHERS),
    (claude.ThinkingConfigAdaptiveParam, anthropic.Thinking, NO_OTHERS),
    (claude.ThinkingConfigDisabledParam, anthropic.Thinking, NO_OTHERS),
]  # fmt: skip
OBJECTS: list[tuple[Any, ObjectFields]] = [
    (responses.EasyInputMessageParam, item_fields.ITEM_FIELDS["message"]),
    (response_input_item_param.Message, item_fields.ITEM_FIELDS["message"]),
    (responses.ResponseOutputMessageParam, item_fields.ITEM_FIELDS["message"]),
    (responses.ResponseFunctionToolCallParam, item_fields.ITEM_FIELDS["function_call"]),
    (
        response_input_item_param.FunctionCallOutput,
        item_fields.ITEM_FIELDS["function_call_output"],
    ),
    (responses.ResponseReasoningItemParam, item_fields.ITEM_FIELDS["reasoning"]),
    (responses.FunctionToolParam, item_fields.TOOL_FIELDS),
    (claude.MessageParam, block_fields.MESSAGE_FIELDS),
    (claude.TextBlockParam, block_fields.BLOCK_FIELDS["text"]),
    (claude.ThinkingBlockParam, block_fields.BLOCK_FIELDS["thinking"]),
    (claude.ToolUseBlockParam, block_fields.BLOCK_FIELDS["tool_use"]),
    (claude.ToolResultBlockParam, block_fields.BLOCK_FIELDS["tool_result"]),
    (claude.ToolParam, block_fields.TOOL_FIELDS),
]


def field_names(kind: Any) -> set[str]:
    """Of a TypedDict, or of all in a union."""
    kinds = get_args(kind) or (kind,)
    return {name for one in kinds for name in get_type_hints(one)}


def check_fates(names: Iterable[str], taken: Iterable[str], known: KnownFields) -> None:
    """Each name has exactly one fate."""
    fates: Mapping[str, list[bool]] = {
        name: [name in taken, name in known.no_effect, name in known.refused] for name in names
    }
    assert {name for name, found in fates.items() if sum(found) != 1} == set()


@pytest.mark.parametrize(("kind", "model", "known"), MODELS)
def test_every_field_of_a_request_is_known(
    kind: Any, model: type[RequestBody], known: KnownFields
) -> None:
    taken = {info.alias or name for name, info in model.model_fields.items()}
    check_fates(field_names(kind), taken, known)


@pytest.mark.parametrize(("kind", "fields"), OBJECTS)
def test_every_field_of_an_item_is_known(kind: Any, fields: ObjectFields) -> None:
    check_fates(field_names(kind), fields.taken, fields.others)


def types_in(union: Any) -> Iterator[str]:
    """The values of `type` in a union of TypedDicts."""
    for kind in get_args(union):
        yield from _literals(get_type_hints(kind)["type"])


def _literals(hint: Any) -> Iterator[str]:
    for part in get_args(hint):
        if isinstance(part, str):
            yield part
        elif part is not type(None):
            yield from _literals(part)


def test_every_kind_of_item_is_taken_or_refused_by_name() -> None:
    for kind in set(types_in(responses.ResponseInputItemParam)):
        with pytest.raises(UserError, match=r"^input\[0\]") as caught:  # or what it lacks is named
            item_messages([{"type": kind, "content": 5}], "input")
        if kind not in item_fields.ITEM_FIELDS:
            assert f"type '{kind}' are not supported" in str(caught.value)


def test_every_kind_of_tool_is_taken_or_refused_by_name() -> None:
    for kind in set(types_in(responses.ToolParam)) - {"function"}:
        body = request.ResponsesRequest(input="x", tools=[{"type": kind, "name": "x"}])
        with pytest.raises(UserError, match=rf"^tools\[0\].*'{kind}'"):
            chat_of_response(body, [{"role": "user", "content": "x"}])
    for kind in set(types_in(claude.ToolUnionParam)) - {"custom"}:
        with pytest.raises(UserError, match=rf"^tools\[0\].*{kind[:40]}"):
            chat_request(_conversation("x", tools=[{"type": kind, "name": "x"}]))


def test_every_kind_of_block_is_taken_or_refused_by_name() -> None:
    for kind in set(types_in(claude.ContentBlockParam)):
        for role in ("user", "assistant"):
            with pytest.raises(UserError, match=r"messages\[0\].content\[0\]") as caught:
                chat_request(_conversation([{"type": kind}], role=role))
            if kind not in block_fields.BLOCK_FIELDS:
                assert repr(kind[:40]) in str(caught.value)


def _conversation(content: Any, role: str = "user", **fields: Any) -> anthropic.CountTokensRequest:
    messages = [{"role": role, "content": content}]
    return anthropic.CountTokensRequest(model="m", messages=messages, **fields)
