"""The fields that are honoured, of each request of the OpenAI family. Others: `known_fields`."""

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from octavo.server.openai.common_fields import RequestId, SamplingFields, Seconds, TermsFields
from octavo.server.openai.fields import Int, NestedBody, RequestBody
from octavo.server.openai.limits import MAX_DOCUMENTS, MAX_MESSAGES, MAX_TOOLS

_STRINGS = {"type": "array", "items": {"type": "string"}}
_INTEGERS = {"type": "array", "items": {"type": "integer"}}

PromptInput = Annotated[
    Any,  # checked by `prompts`: pydantic would take a second for a million ids
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, _STRINGS, _INTEGERS, {"type": "array", "items": _INTEGERS}]}
    ),
]
TokenIdsInput = Annotated[Any, WithJsonSchema(_INTEGERS)]
SchemaInput = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "string"}]})]


class StreamOptions(NestedBody):
    """What a stream carries besides text."""

    include_usage: bool | None = None
    """A last chunk with the usage; null: yes."""
    continuous_usage_stats: bool | None = None
    """The usage so far in every chunk."""
    include_obfuscation: bool | None = None
    """Padding against traffic analysis. Nothing is padded here."""


class JsonSchemaFormat(NestedBody):
    """The schema of an answer. It is always followed to the letter, whatever `strict` says."""

    name: str | None = None
    description: str | None = None
    json_schema: SchemaInput = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(NestedBody):
    """text, json_object or json_schema."""

    type: str
    json_schema: JsonSchemaFormat | None = None
    value: Any = None
    """The schema or expression, as TGI has it: with the types json, json_object, json_schema and regex."""


class GenerationBody(SamplingFields, TermsFields):
    """What completions and chat have in common."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: dict[str, Any] | None = None
    """One of json, regex, choice, grammar and json_object, as in vLLM; the guided fields are its older names."""
    guided_json: SchemaInput = None
    guided_json_object: bool | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_whitespace_pattern: str | None = None

    n: Int | None = None
    best_of: Int | None = None
    max_tokens: Int | None = None
    prompt_logprobs: Int | None = None
    use_beam_search: bool | None = None
    """Search along `n` beams for the most likely answers."""
    length_penalty: float | None = None
    """Of beams."""
    early_stopping: bool | str | None = None
    """Of beams: true, false or "never"."""
    add_special_tokens: bool | None = None

    request_id: RequestId = None
    return_kv_usage: bool | None = None
    """Say in the usage what the request cost in pages of the KV cache."""
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    """Names of tokens in logprobs are `token_id:N`."""


class CompletionRequest(GenerationBody):
    """POST /v1/completions."""

    prompt: PromptInput
    echo: bool | None = None
    logprobs: Int | None = None


class TemplateBody(RequestBody):
    """What decides how messages become a prompt."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_MESSAGES)]
    tools: Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS)] | None = None
    add_generation_prompt: bool | None = None
    """Null: yes, unless `continue_final_message`."""
    continue_final_message: bool | None = None
    documents: Annotated[list[dict[str, Any]], Field(max_length=MAX_DOCUMENTS)] | None = None
    chat_template: str | None = None
    """Only where the server trusts its clients with templates."""
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    """Handed to the template under this name."""


class ChatRequest(TemplateBody, GenerationBody):
    """POST /v1/chat/completions."""

    max_completion_tokens: Int | None = None
    logprobs: bool | None = None
    top_logprobs: Int | None = None
    echo: bool | None = None
    """Put the text of a final assistant message in front of the answer."""
    tool_choice: str | dict[str, Any] | None = None
    """none, auto, required, or a tool: its name by itself too, as TGI has it. Null: auto if there are tools."""
    parallel_tool_calls: bool | None = None
    """False: at most one call."""
    include_reasoning: bool | None = None
    """False: leave out what the model thinks before it answers."""


class TokenizeCompletionRequest(RequestBody):
    """POST /tokenize with a prompt."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeChatRequest(TemplateBody):
    """POST /tokenize with messages."""

    model: str | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(RequestBody):
    """POST /detokenize."""

    model: str | None = None
    tokens: TokenIdsInput


class PrefixFields(TermsFields):
    """What requests for named prefixes have in common. Only requests with the same `cache_salt` find one."""

    model: str | None = None
    ttl_s: Seconds = None
    """How long to keep it; null: an hour."""
    add_special_tokens: bool | None = None


class TextPrefixRequest(PrefixFields):
    """PUT /v1/prefixes/{name} with a prompt: text, or token ids."""

    prompt: Annotated[Any, WithJsonSchema({"anyOf": [{"type": "string"}, _INTEGERS]})]


class ChatPrefixRequest(TemplateBody, PrefixFields):
    """PUT /v1/prefixes/{name} with messages: the first of a conversation."""
