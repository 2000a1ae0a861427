"""Chats to prompts."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from octavo.checkpoints.checkpoint import open_checkpoint
from octavo.errors import InvalidParameterError, TemplateError
from octavo.text.chat_messages import ASSISTANT, DEVELOPER, normalize_messages, text_of, with_text
from octavo.text.gguf_tokenizer import gguf_chat_templates
from octavo.text.huggingface_tokenizer import huggingface_chat_templates
from octavo.text.template_environment import TemplateEnvironment, render_template
from octavo.text.tokenizer import Tokenizer

_RESERVED = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
)
"""What `render` itself gives to the template."""
_LOOPS_OVER_PARTS = re.compile(r"for\s+\w+\s+in\s+\w+(?:\.content\b|\[['\"]content['\"]\])")
_ASKS_KIND = re.compile(r"\bis\s+(?:not\s+)?(?:string|iterable|sequence|mapping)\b")
_UNCHECKED_ROLES = frozenset({"user", ASSISTANT, "tool", "function", "ipython"})
"""Every template knows the first two, and templates shorten answers on purpose (reasoning)."""
_END_MARK = "\ue000end of the final message\ue000 "
"""Its last space shows whether the template trims texts."""


class ChatTemplate:
    """A compiled chat template, rendered as Hugging Face renders it. Safe to use from several threads.

    The prompt is to be encoded without special tokens: a template prints BOS where it belongs.
    Raises TemplateError for a source that cannot be compiled.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str | None,
        eos_token: str | None,
        tool_source: str | None = None,
        other_special_tokens: Mapping[str, str] | None = None,
    ) -> None:
        environment = TemplateEnvironment()
        self._default = _Compiled(source, environment)
        self._with_tools = (
            self._default if tool_source is None else _Compiled(tool_source, environment)
        )
        named = {"bos_token": bos_token, "eos_token": eos_token, **(other_special_tokens or {})}
        self.tool_source = source if tool_source is None else tool_source
        """What renders messages when there are tools."""
        self._special_tokens = {name: token for name, token in named.items() if token is not None}

    @property
    def knows_tools(self) -> bool:
        """Whether it puts tools into the prompt."""
        return "tools" in self.tool_source

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt. With `continue_final_message` it ends with the last message's text, left open.

        Raises TemplateError if the template refuses the messages, fails, or leaves a system or developer
        message out; InvalidParameterError and UnsupportedParameterError for messages of a wrong form.
        """
        if add_generation_prompt and continue_final_message:
            raise InvalidParameterError(
                "continue_final_message and add_generation_prompt cannot both be true: the prompt either "
                "goes on with the last message or begins a new one",
                parameter="continue_final_message",
                value=True,
            )
        if reserved := sorted(_RESERVED & set(kwargs or ())):
            raise InvalidParameterError(
                f"chat_template_kwargs cannot set {', '.join(reserved)}",
                parameter="chat_template_kwargs",
                value=reserved,
            )
        compiled = self._with_tools if tools else self._default
        chat = normalize_messages(
            messages,
            knows_developer=compiled.knows_developer,
            wants_parts=compiled.wants_parts,
        )
        variables = {
            **self._special_tokens,
            **(kwargs or {}),
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
        }
        if continue_final_message:
            return _render_open(compiled, chat, variables)
        prompt = compiled.render(chat, variables)
        _check_complete(compiled, chat, variables, prompt)
        return prompt


class _Compiled:
    """One template, and what it expects of messages."""

    def __init__(self, source: str, environment: TemplateEnvironment) -> None:
        self._template: jinja2.Template = environment.compile_template(source)
        self.knows_developer = DEVELOPER in source
        self.wants_parts = bool(_LOOPS_OVER_PARTS.search(source)) and not _ASKS_KIND.search(source)

    def render(self, chat: list[dict[str, Any]], variables: Mapping[str, Any]) -> str:
        return render_template(self._template, {**variables, "messages": chat})


def load_chat_template(
    path: Path, override: str | None, tokenizer: Tokenizer
) -> ChatTemplate | None:
    """The chat template of a model, or None if it has none (a base model).

    `override`, a Jinja file or the template itself, wins; then what came with the tokenizer; then what the
    model at `path` has. Raises TemplateError for a file that does not exist or does not compile.
    """
    if override is not None:
        templates = {"default": _read_override(override)}
    else:
        templates = dict(tokenizer.chat_templates) or _model_templates(path)
    if "default" not in templates:
        return None
    return ChatTemplate(
        templates["default"],
        bos_token=tokenizer.bos_token,
        eos_token=tokenizer.eos_token,
        tool_source=templates.get("tool_use"),
        other_special_tokens=tokenizer.other_special_tokens,
    )


def _read_override(override: str) -> str:
    if "{" in override or "\n" in override:
        return override
    try:
        return Path(override).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(
            f"{override}: neither a template (it has no braces) nor a readable file: {error}",
            parameter="chat_template",
            value=override,
        ) from error


def _model_templates(path: Path) -> dict[str, str]:
    if path.is_dir():
        return huggingface_chat_templates(path)
    if path.suffix == ".json":
        return huggingface_chat_templates(path.parent)
    return gguf_chat_templates(open_checkpoint(path).metadata)


def _render_open(
    compiled: _Compiled, chat: list[dict[str, Any]], variables: Mapping[str, Any]
) -> str:
    """The prompt up to the end of the last message's text."""
    text = text_of(chat[-1])
    marked = [*chat[:-1], with_text(chat[-1], text + _END_MARK)]
    prompt = compiled.render(marked, variables)
    _check_complete(compiled, marked, variables, prompt)
    begin, mark, _ = prompt.rpartition(_END_MARK.rstrip())
    if not mark or text.strip() not in begin:
        raise TemplateError(
            "continue_final_message: the chat template changes or leaves out the final message",
            parameter="continue_final_message",
        )
    return begin if prompt.startswith(_END_MARK, len(begin)) else begin.rstrip()


def _check_complete(
    compiled: _Compiled, chat: list[dict[str, Any]], variables: Mapping[str, Any], prompt: str
) -> None:
    """Refuse a prompt in which an instruction has no effect: many templates drop roles without a word."""
    for i, message in enumerate(chat):
        text = text_of(message).strip()
        if message["role"] in _UNCHECKED_ROLES or text in prompt:
            continue
        # The template may rework the text. It is left out if another text gives the same prompt.
        other = [*chat[:i], with_text(message, text + _END_MARK), *chat[i + 1 :]]
        if compiled.render(other, variables) == prompt:
            raise TemplateError(
                f"the chat template leaves out messages[{i}] (role {message['role']!r})",
                parameter="messages",
                value=message["role"],
            )
