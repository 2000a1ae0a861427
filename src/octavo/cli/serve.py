"""`octavo serve`: the OpenAI API over HTTP."""

import http.client
import json
import logging
import shlex
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from octavo.cli.flags import Group, Settings, takes_flags
from octavo.cli.pull import MODEL_HELP, with_fetched_model
from octavo.cli.vllm_flags import accepts_vllm_flags
from octavo.config import DEFAULT_MODEL
from octavo.errors import ConfigError
from octavo.resolve import GIB

if TYPE_CHECKING:
    from octavo.engine.messages import Ready

ASK_TIMEOUT_S = 10.0


@accepts_vllm_flags
@takes_flags(Group.MODEL, Group.MEMORY, Group.SERVER)
def serve(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help=MODEL_HELP)] = None,
    *,
    model_flag: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="The same as the argument.")
    ] = None,
    settings: Settings,
) -> None:
    """Serve a model on 127.0.0.1:8000, or where --host and --port say. SIGTERM and Ctrl-C let requests finish."""
    # The command line is read before anything that only serving needs is imported.
    from octavo.server.serve import serve as serve_http

    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)
    logging.getLogger("octavo").setLevel(logging.INFO)
    name = _choose(model, model_flag)
    engine, server = settings.engine(name), settings.server()
    engine = with_fetched_model(engine)
    server = replace(server, served_model_names=server.served_model_names or (name,))
    exit_code = serve_http(
        engine,
        server,
        on_ready=lambda url, ready: _announce(url, ready, server.served_model_names[0]),
    )
    raise typer.Exit(exit_code)


def _choose(argument: str | None, flag: str | None) -> str:
    if argument is not None and flag is not None and argument != flag:
        raise ConfigError(f"two models are given: {argument} and --model {flag}")
    return argument or flag or DEFAULT_MODEL


def _announce(url: str, ready: "Ready", name: str) -> None:
    """Say what is served and how to ask it, from a thread: the server answers one of its questions."""
    threading.Thread(target=lambda: typer.echo(greeting(url, ready, name, can_chat(url)))).start()


def greeting(url: str, ready: "Ready", name: str, is_chat: bool) -> str:
    """What is served, and two ways to ask it, ready to paste."""
    capacity = ready.num_blocks * ready.block_size
    ledger = ", ".join(f"{line.name} {line.num_bytes / GIB:.2f} GiB" for line in ready.ledger)
    ask: dict[str, object]
    if is_chat:
        path, call, answer = "chat/completions", "chat.completions.create", "message.content"
        ask = {"messages": [{"role": "user", "content": "Hello!"}]}
    else:
        path, call, answer = "completions", "completions.create", "text"
        ask = {"prompt": "Once upon a time"}
    ask = {"model": name, **ask, "max_tokens": 64}
    # JSON of these is Python too.
    arguments = ", ".join(f"{key}={json.dumps(value)}" for key, value in ask.items())
    python = (
        f'from openai import OpenAI; client = OpenAI(base_url="{url}/v1", api_key="none"); '
        f"print(client.{call}({arguments}).choices[0].{answer})"
    )
    return "\n".join(
        (
            f"octavo serves {name} on {url}",
            f"  {ready.dtype} weights, {ready.kv_cache_dtype} cache, {ready.isa}, {ready.num_threads} threads",
            f"  {ready.num_blocks:,} pages of {ready.block_size} = {capacity:,} tokens, "
            f"{capacity // ready.max_model_len:,} sequences of {ready.max_model_len:,}",
            f"  {ledger}",
            "",
            f"curl {url}/v1/{path} -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(ask))}",
            "",
            f"python -c {shlex.quote(python)}",
        )
    )


def can_chat(url: str) -> bool:
    """Whether the served model has a chat template. Asks /tokenize, which says so without computing anything."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(
        address.hostname or "", address.port, timeout=ASK_TIMEOUT_S
    )
    try:
        body = json.dumps({"messages": [{"role": "user", "content": "Hello!"}]})
        connection.request("POST", "/tokenize", body, {"Content-Type": "application/json"})
        return connection.getresponse().status == http.client.OK
    finally:
        connection.close()
