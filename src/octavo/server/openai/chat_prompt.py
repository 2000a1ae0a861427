"""Messages -> the prompt's token ids, through the model's chat template."""

from dataclasses import dataclass
from typing import Any

from octavo.config import ServerConfig
from octavo.errors import InvalidParameterError, TemplateError, UnsupportedParameterError
from octavo.server.openai.limits import MAX_TEMPLATE_KWARGS, check_text_len
from octavo.server.openai.messages import last_assistant_text, split_message_fields, text_size
from octavo.server.openai.requests import TemplateBody
from octavo.server.serving import INLINE_CHARS, ServedModel, Serving
from octavo.text.answer.instructions import with_instructions
from octavo.text.assets import TextAssets
from octavo.text.chat_template import ChatTemplate
from octavo.text.tokenizer import Tokenizer

_RESERVED_KWARGS = frozenset({"bos_token", "eos_token", "chat_template", "tokenize"})
"""Names that would replace the template or its tokens; `render` itself refuses those of its own arguments."""


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A rendered conversation."""

    text: str
    token_ids: list[int]
    template: ChatTemplate
    messages: list[dict[str, Any]]
    ignored_fields: list[str]
    """Unknown fields of messages."""

    @property
    def echo(self) -> str:
        """What stands in front of the answer if it is to continue the assistant's last message."""
        return last_assistant_text(self.messages)


async def chat_prompt(
    serving: Serving,
    model: ServedModel,
    body: TemplateBody,
    *,
    add_special_tokens: bool,
    may_call: bool,
) -> ChatPrompt:
    """Render and tokenize. `may_call`: tools are explained to the model even if the template knows none.

    Raises InvalidParameterError, UnsupportedParameterError, TemplateError, ContextLengthError.
    """
    assets, max_model_len = model.assets, model.ready.max_model_len
    messages, ignored = split_message_fields(body.messages)
    kwargs = _template_kwargs(body)
    continues = bool(body.continue_final_message)
    begins = not continues if body.add_generation_prompt is None else body.add_generation_prompt

    template = _template(assets, body, serving.config)

    def render() -> tuple[str, list[int]]:
        explains = may_call and body.tools and not template.knows_tools
        text = template.render(
            with_instructions(messages, body.tools or ()) if explains else messages,
            add_generation_prompt=begins,
            continue_final_message=continues,
            tools=body.tools or None,
            documents=body.documents or None,
            kwargs=kwargs,
        )
        check_text_len(text, max_model_len)
        return text, assets.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    size = text_size(
        [messages, body.tools, body.documents, kwargs, body.chat_template], INLINE_CHARS
    )
    text, token_ids = await serving.off_loop(size, render)
    return ChatPrompt(text, token_ids, template, messages, ignored)


def _template(assets: TextAssets, body: TemplateBody, config: ServerConfig) -> ChatTemplate:
    if body.chat_template is not None:
        if not config.trust_request_chat_template:
            raise UnsupportedParameterError(
                "chat_template is only taken from requests with --trust-request-chat-template",
                parameter="chat_template",
            )
        return _request_template(body.chat_template, assets.tokenizer)
    if assets.chat_template is None:
        raise TemplateError(
            "the model has no chat template; start the server with --chat-template, "
            "or use /v1/completions",
            parameter="messages",
        )
    return assets.chat_template


def _request_template(source: str, tokenizer: Tokenizer) -> ChatTemplate:
    return ChatTemplate(source, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)


def _template_kwargs(body: TemplateBody) -> dict[str, Any]:
    kwargs = dict(body.chat_template_kwargs or {})
    if len(kwargs) > MAX_TEMPLATE_KWARGS:
        raise InvalidParameterError(
            f"chat_template_kwargs may hold at most {MAX_TEMPLATE_KWARGS} names; given: {len(kwargs)}",
            parameter="chat_template_kwargs",
            value=len(kwargs),
        )
    for name in kwargs:
        if name in _RESERVED_KWARGS or not name.isidentifier():
            raise InvalidParameterError(
                f"chat_template_kwargs must not hold {name[:80]!r}",
                parameter="chat_template_kwargs",
                value=name,
            )
    if body.reasoning_effort is not None:
        kwargs.setdefault("reasoning_effort", body.reasoning_effort)
    return kwargs
