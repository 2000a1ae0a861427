"""`octavo generate`: one prompt, one answer."""

from typing import Annotated

import typer

from octavo.cli.flags import ALONE_FLAGS, Group, Settings, takes_flags
from octavo.cli.pull import MODEL_HELP
from octavo.cli.terminal import Output, OutputOption, print_json
from octavo.config import DEFAULT_MODEL

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

    with open_local(model, settings, settings.server().chat_template) as local:
        if chat:
            token_ids = local.chat_prompt([{"role": "user", "content": prompt}])
        else:
            token_ids = local.tokenizer.encode(prompt)
        params = local.sampling(settings, MAX_TOKENS)
        text: list[str] = []
        generated: list[int] = []
        finish_reason: str | None = None
        stop_reason: int | str | None = None
        for delta, new_ids in local.answer(token_ids, params):
            text.append(delta.text)
            generated += new_ids
            finish_reason, stop_reason = delta.finish_reason, delta.stop_reason
            if output is Output.TEXT:
                typer.echo(delta.text, nl=False)
        if output is Output.TEXT:
            typer.echo()
            return
        print_json(
            {
                "model": model,
                "prompt": prompt,
                "text": "".join(text),
                "token_ids": generated,
                "finish_reason": finish_reason,
                "stop_reason": stop_reason,
                "usage": {
                    "prompt_tokens": len(token_ids),
                    "completion_tokens": len(generated),
                    "total_tokens": len(token_ids) + len(generated),
                },
            }
        )
