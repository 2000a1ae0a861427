"""`octavo chat`: a conversation in the terminal."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.flags import ALONE_FLAGS, Group, Settings, takes_flags
from octavo.cli.pull import MODEL_HELP
from octavo.cli.terminal import note
from octavo.config import DEFAULT_MODEL
from octavo.errors import UserError

if TYPE_CHECKING:
    from octavo.cli.local import LocalModel

Messages = list[dict[str, str]]

MAX_TOKENS = 512
"""Without --max-tokens: a small model that has lost its way would fill the whole context."""
HINT = "Ctrl-C stops an answer, /reset begins anew, Ctrl-D ends; /help says more."
HELP = """/reset           forget the conversation and begin anew
/exit, /quit     end (so does Ctrl-D)
/help            show this
Ctrl-C           stop an answer
Everything else is a message to the model."""
ENDINGS = ("/exit", "/quit", "/bye")


@takes_flags(*ALONE_FLAGS, Group.SAMPLING, "--chat-template")
def chat(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)] = DEFAULT_MODEL,
    *,
    system: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What the model is told before the first message."),
    ] = None,
    settings: Settings,
) -> None:
    """Talk with a model. Each line is a message; the whole conversation is its context."""
    # The engine takes longer to import than the whole of `--help`.
    from octavo.cli.local import open_local

    opening: Messages = [{"role": "system", "content": system}] if system else []
    template = settings.server().chat_template
    settings.check_sampling(MAX_TOKENS)
    with open_local(model, settings, template) as local:
        messages = [*opening]
        local.chat_prompt([*messages, {"role": "user", "content": "Hello"}])  # fails now or never
        if sys.stdin.isatty():
            import readline  # noqa: F401  # gives `input` its line editing

            note(f"{model}. {HINT}")
        while (line := _read_line()) is not None:
            if line in ENDINGS:
                break
            if line == "/reset":
                messages = [*opening]
            elif line == "/help":
                note(HELP)
            elif line.startswith("/"):
                note(f"there is no command {line.split()[0]}; /help lists those there are")
            elif line:
                messages = _turn(local, settings, messages, line)


def _turn(local: "LocalModel", settings: Settings, messages: Messages, line: str) -> Messages:
    """Answer one message. The conversation with both, or as it was if it could not be answered."""
    asked = [*messages, {"role": "user", "content": line}]
    answer: list[str] = []
    try:
        prompt = local.chat_prompt(asked)
        params = local.sampling(settings, MAX_TOKENS, is_chat=True)
        for delta, _ in local.answer(prompt, params):
            typer.echo(delta.text, nl=False)
            answer.append(delta.text)
    except KeyboardInterrupt:
        typer.echo(" ...", nl=False)
    except UserError as error:  # a conversation that no longer fits, mostly
        note(f"octavo: {error}")
        return messages
    typer.echo()
    return [*asked, {"role": "assistant", "content": "".join(answer)}]


def _read_line() -> str | None:
    """The next message; None at the end of the input."""
    while True:
        try:
            return input("> " if sys.stdin.isatty() else "").strip()
        except EOFError:
            return None
        except KeyboardInterrupt:
            note(f"\n{HINT}")
