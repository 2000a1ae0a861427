"""`octavo generate`: one prompt, one answer."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.flags import ALONE_FLAGS, Group, Settings, takes_flags
from octavo.cli.pull import MODEL_HELP
from octavo.cli.terminal import Output, OutputOption, print_json
from octavo.config import DEFAULT_MODEL
from octavo.core.sampling_params import SamplingParams
from octavo.errors import ConfigError, PromptError

if TYPE_CHECKING:
    from octavo.cli.local import LocalModel

MAX_TOKENS = 256
"""Without --max-tokens; to the end of the context would be minutes."""


@takes_flags(*ALONE_FLAGS, Group.SAMPLING, "--chat-template")
def generate(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The text to continue.")],
    *,
    model: Annotated[str, typer.Option(metavar="MODEL", help=MODEL_HELP)] = DEFAULT_MODEL,
    chat: Annotated[
        bool, typer.Option("--chat", help="The prompt is a message: use the model's chat template.")
    ] = False,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Continue a text, on the terminal as it is made."""
    # The engine takes longer to import than the whole of `--help`.
    from octavo.cli.local import open_local

    template = settings.server().chat_template
    if template is not None and not chat:
        raise ConfigError("--chat-template has no effect without --chat")
    if not prompt:
        raise PromptError("the prompt is empty: give a text to continue")
    settings.check_sampling(MAX_TOKENS)
    with open_local(model, settings, template) as local:
        if chat:
            token_ids = local.chat_prompt([{"role": "user", "content": prompt}])
        else:
            token_ids = local.tokenizer.encode(prompt)
        params = local.sampling(settings, MAX_TOKENS, is_chat=chat)
        if output is Output.TEXT:
            for delta, _ in local.answer(token_ids, params):
                typer.echo(delta.text, nl=False)
            typer.echo()
        else:
            print_json({"model": model, "prompt": prompt, **_answer(local, token_ids, params)})


def _answer(local: "LocalModel", prompt: list[int], params: SamplingParams) -> dict[str, Any]:
    """The whole answer, and how many tokens it took."""
    text: list[str] = []
    token_ids: list[int] = []
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    for delta, new_ids in local.answer(prompt, params):
        text.append(delta.text)
        token_ids += new_ids
        finish_reason, stop_reason = delta.finish_reason, delta.stop_reason
    return {
        "text": "".join(text),
        "token_ids": token_ids,
        "finish_reason": finish_reason,
        "stop_reason": stop_reason,
        "usage": {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(token_ids),
            "total_tokens": len(prompt) + len(token_ids),
        },
    }
