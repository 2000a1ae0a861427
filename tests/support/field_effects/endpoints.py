"""Every request model of the server, where it is asked, and the table of its fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo.server.anthropic.requests import (
    COUNT_FIELDS,
    MESSAGES_FIELDS,
    CountTokensRequest,
    MessagesRequest,
)
from octavo.server.batch.lines import BatchLine
from octavo.server.kserve.parameters import PARAMETER_FIELDS
from octavo.server.kserve.parameters import GenerateParameters as TritonParameters
from octavo.server.kserve.repository import IndexRequest, RepositoryRequest
from octavo.server.kserve.requests import InferRequest, TritonGenerateRequest
from octavo.server.models.routes import LoadRequest, UnloadRequest
from octavo.server.openai.embeddings.request import EMBEDDINGS_FIELDS, EmbeddingsRequest
from octavo.server.openai.fields import NO_OTHERS, KnownFields, NestedBody, RequestBody
from octavo.server.openai.known_fields import CHAT_FIELDS, COMPLETION_FIELDS, TOKENIZE_FIELDS
from octavo.server.openai.requests import (
    ChatPrefixRequest,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TextPrefixRequest,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
)
from octavo.server.openai.responses.request import RESPONSES_FIELDS, ResponsesRequest
from octavo.server.tgi.requests import GENERATE_FIELDS
from octavo.server.tgi.requests import GenerateRequest as TgiRequest
from support.field_effects import openai, others
from support.field_effects.common import PRINTABLE, USER
from support.field_effects.rows import Json, Row

PREFIX = "/v1/prefixes/fields"


@dataclass(frozen=True)
class Endpoint:
    """A request model and how to ask for it."""

    title: str
    model: type[RequestBody]
    table: Mapping[str, Row]
    known: KnownFields = NO_OTHERS
    """What becomes of fields that the model does not declare."""
    url: str = ""
    """Empty: all rows are about tests elsewhere."""
    base: Json = field(default_factory=dict)
    at: str = ""
    """The field of the body in which the model's fields stand."""
    method: str = "POST"


_SAY: Json = {"max_tokens": 12, "seed": 3, "allowed_token_ids": PRINTABLE}
_LONG_TEXT = "say " * 10
_VECTOR: Json = {"input": "say"}
_TRITON: Json = {
    "text_input": "say",
    "exclude_input_in_output": True,
    "return_num_output_tokens": True,
    "parameters": _SAY,
}
_INPUT: Json = {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["say"]}
_TRITON_URL = "/v2/models/tiny/generate"
_CLAUDE: Json = {"model": "tiny", "messages": USER}

ENDPOINTS = (
    Endpoint("/v1/completions", CompletionRequest, openai.COMPLETION, COMPLETION_FIELDS, "/v1/completions", {**_SAY, "prompt": _LONG_TEXT}),
    Endpoint("/v1/chat/completions", ChatRequest, openai.CHAT, CHAT_FIELDS, "/v1/chat/completions", {**_SAY, "messages": USER}),
    Endpoint(
        "/v1/responses", ResponsesRequest, openai.RESPONSES, RESPONSES_FIELDS, "/v1/responses",
        {"input": "say", "max_output_tokens": 12, "seed": 3, "allowed_token_ids": PRINTABLE},
    ),
    Endpoint("/v1/embeddings", EmbeddingsRequest, openai.EMBEDDINGS, EMBEDDINGS_FIELDS, "/v1/embeddings", _VECTOR),
    Endpoint(
        "/v1/messages", MessagesRequest, others.MESSAGES, MESSAGES_FIELDS, "/v1/messages",
        {**_CLAUDE, "max_tokens": 12, "temperature": 0},
    ),
    Endpoint("/v1/messages/count_tokens", CountTokensRequest, others.COUNT_TOKENS, COUNT_FIELDS, "/v1/messages/count_tokens", _CLAUDE),
    Endpoint("/tokenize with a prompt", TokenizeCompletionRequest, openai.TOKENIZE_PROMPT, TOKENIZE_FIELDS, "/tokenize", {"prompt": "say"}),
    Endpoint("/tokenize with messages", TokenizeChatRequest, openai.TOKENIZE_CHAT, TOKENIZE_FIELDS, "/tokenize", {"messages": USER}),
    Endpoint("/detokenize", DetokenizeRequest, openai.DETOKENIZE, TOKENIZE_FIELDS, "/detokenize", {"tokens": [71]}),
    Endpoint(
        "/v1/prefixes/{name} with a prompt", TextPrefixRequest, openai.TEXT_PREFIX, TOKENIZE_FIELDS, PREFIX,
        {"prompt": _LONG_TEXT}, method="PUT",
    ),
    Endpoint(
        "/v1/prefixes/{name} with messages", ChatPrefixRequest, openai.CHAT_PREFIX, TOKENIZE_FIELDS, PREFIX,
        {"messages": [{"role": "user", "content": _LONG_TEXT}]}, method="PUT",
    ),
    Endpoint(
        "/generate of TGI", TgiRequest, others.TGI, GENERATE_FIELDS, "/",
        {"inputs": "say", "parameters": {"max_new_tokens": 12, "details": True}},
    ),
    Endpoint(_TRITON_URL, TritonGenerateRequest, others.TRITON, NO_OTHERS, _TRITON_URL, _TRITON),
    Endpoint(f"{_TRITON_URL}, its parameters", TritonParameters, others.TRITON_PARAMETERS, PARAMETER_FIELDS, _TRITON_URL, _TRITON, "parameters"),
    Endpoint("/v2/models/{name}/infer", InferRequest, others.INFER, NO_OTHERS, "/v2/models/tiny/infer", {"inputs": [_INPUT]}),
    Endpoint("/v2/repository/index", IndexRequest, others.INDEX),
    Endpoint("/v2/repository/models/{name}/load and unload", RepositoryRequest, others.REPOSITORY),
    Endpoint("/v1/models/load", LoadRequest, others.LOAD),
    Endpoint("/v1/models/unload", UnloadRequest, others.UNLOAD),
    Endpoint("a line of `octavo run-batch`", BatchLine, others.BATCH),
)  # fmt: skip


def field_names(model: type[RequestBody]) -> set[str]:
    """All fields, by the names that requests have for them; those of nested objects after theirs and a dot."""
    names: set[str] = set()
    for name, info in model.model_fields.items():
        spelled = info.alias or name
        nested = nested_model(info.annotation)
        if nested is None:
            names.add(spelled)
        else:
            names |= {f"{spelled}.{inner}" for inner in field_names(nested)}
    return names


def nested_model(annotation: Any) -> type[NestedBody] | None:
    """The model of a field that holds an object of its own."""
    for kind in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(kind, type) and issubclass(kind, NestedBody):
            return kind
    return None


def set_fields(body: Json, fields: Json) -> Json:
    """The body with these fields; objects in both are joined. A name with dots leads into objects."""
    body = dict(body)
    for name, value in fields.items():
        first, _, rest = name.partition(".")
        if rest:
            value = {rest: value}
        inside = body.get(first)
        is_object = isinstance(inside, dict) and isinstance(value, dict)
        body[first] = set_fields(inside or {}, value) if rest or is_object else value
    return body
