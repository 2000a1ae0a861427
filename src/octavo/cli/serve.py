"""`octavo serve`: the OpenAI API over HTTP."""

import json
import logging
import os
import shlex
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from octavo.cli.config_file import config_text, read_config
from octavo.cli.flags import Group, Settings, takes_flags
from octavo.cli.memory_text import counted, memory_lines, size
from octavo.cli.pull import MODEL_HELP, with_fetched_model
from octavo.cli.request_flags import refuses_sampling_flags
from octavo.cli.vllm_flags import accepts_vllm_flags
from octavo.config import DEFAULT_MODEL, ServerConfig
from octavo.errors import ConfigError, TemplateError
from octavo.evaluation.processes import descendants, process_use

if TYPE_CHECKING:
    from octavo.engine.messages import Ready
    from octavo.server.models.settings import ModelSettings
    from octavo.text.assets import TextAssets

MAX_TOKENS = 64
"""Of the answers to what the greeting suggests."""


ModelFlag: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="[NAME=]MODEL",
        help="The same as the argument; repeat it with names to serve several models.",
    ),
]
ModelConfigFlag: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="YAML or JSON with several models and their settings."),
]
ConfigFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=read_config,
        help="YAML file of flags by their names, as in `max-num-seqs: 64`; the command line wins.",
    ),
]
PrintConfigFlag: TypeAlias = Annotated[
    bool, typer.Option("--print-config", help="Print all settings as such a file, and end.")
]


@refuses_sampling_flags
@accepts_vllm_flags
@takes_flags(Group.MODEL, Group.MEMORY, Group.SERVER)
def serve(
    context: typer.Context,
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help=MODEL_HELP)] = None,
    *,
    model_flag: ModelFlag = None,
    model_config: ModelConfigFlag = None,
    _config: ConfigFlag = None,
    print_config: PrintConfigFlag = False,
    settings: Settings,
) -> None:
    """Serve a model on 127.0.0.1:8000, or where --host and --port say. SIGTERM and Ctrl-C let requests finish."""
    # The command line is read before anything that only serving needs is imported.
    from octavo.server.serve import serve as serve_http

    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)
    logging.getLogger("octavo").setLevel(logging.INFO)
    server = with_api_key_of_vllm(settings.server())
    several = _several(context, model, model_flag or [], model_config, settings)
    if several is not None:
        if print_config:
            raise ConfigError(
                "--print-config shows a server of one model; several stand in --model-config"
            )
        from octavo.cli.serve_models import serve_several

        raise typer.Exit(serve_several(several, server))
    name = _choose(context, model, model_flag or [])
    engine = settings.engine(name)
    if print_config:
        typer.echo(config_text(context, name), nl=False)
        raise typer.Exit
    engine = with_fetched_model(engine)
    server = replace(server, served_model_names=server.served_model_names or (name,))
    exit_code = serve_http(
        engine,
        server,
        on_ready=lambda url, ready, assets: _announce(url, ready, assets, server),
    )
    raise typer.Exit(exit_code)


def with_api_key_of_vllm(server: ServerConfig) -> ServerConfig:
    """With the key of vLLM's environment variable, if no flag gives one: whoever set it counts on a closed server."""
    key = os.environ.get("VLLM_API_KEY")
    if not key or server.api_keys or server.api_key_file is not None:
        return server
    return replace(server, api_keys=(key,))


def _is_of_file(context: typer.Context) -> bool:
    """Whether a file names the model: what stands on the command line wins."""
    source = context.get_parameter_source("model_flag")
    return source is not None and source.name == "DEFAULT_MAP"


def _several(
    context: typer.Context,
    argument: str | None,
    flags: Sequence[str],
    path: Path | None,
    settings: Settings,
) -> "list[ModelSettings] | None":
    """The models of a server of several; None: there is one, as ever."""
    if argument is not None and _is_of_file(context):
        flags = []
    if path is None and len(flags) < 2 and not any("=" in flag for flag in flags):
        return None
    from octavo.cli.model_config import named_models, read_model_config

    several = named_models(flags, settings) if path is None else read_model_config(path, settings)
    if several is None:
        return None
    if argument is not None or (path is not None and flags):
        given = [argument or "", *flags, str(path or "")]
        raise ConfigError(
            "give one MODEL, or several with --model NAME=MODEL, or --model-config FILE; "
            f"given: {' and '.join(filter(None, given))}"
        )
    return several


def _choose(context: typer.Context, argument: str | None, flags: Sequence[str]) -> str:
    flag = next(iter(flags), None)
    if _is_of_file(context):
        return argument or flag or DEFAULT_MODEL
    if argument is not None and flag is not None and argument != flag:
        raise ConfigError(f"two models are given: {argument} and --model {flag}")
    return argument or flag or DEFAULT_MODEL


def _announce(url: str, ready: "Ready", assets: "TextAssets", server: ServerConfig) -> None:
    """Say what is served and how to ask it, from a thread: the first clients do not wait for it."""
    threading.Thread(target=lambda: typer.echo(_greeting(url, ready, assets, server))).start()


def _greeting(url: str, ready: "Ready", assets: "TextAssets", server: ServerConfig) -> str:
    """What is served, and two ways to ask it, ready to paste."""
    name = server.served_model_names[0]
    if ready.is_encoder:
        return "\n".join((*what_is_served(url, ready, name), "", *ways_to_embed(url, name)))
    ask: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello!"}]}
    num_tokens = num_chat_tokens(assets, ask["messages"])
    is_chat = num_tokens is not None
    if num_tokens is None:
        ask = {"prompt": "Once upon a time"}
        num_tokens = len(assets.tokenizer.encode(ask["prompt"]))
    room = max(1, ready.max_model_len - num_tokens)
    served = what_is_served(url, ready, name)
    in_use = memory_in_use()
    if in_use is not None:
        served.append(f"  {size(in_use)} in use now by all processes")
    if server.api_keys:
        return "\n".join([*served, "  every route but /health asks for an API key"])
    lines = (*served, "", *ways_to_ask(url, name, ask, is_chat, room))
    return "\n".join(lines)


def what_is_served(url: str, ready: "Ready", name: str) -> list[str]:
    """The model, its limits and its memory."""
    if ready.is_encoder:
        return [
            f"octavo serves {name} on {url}",
            f"  an encoder in float32: embeddings of texts of at most {ready.max_model_len} tokens",
        ]
    memory = memory_lines(
        [(line.name, line.num_bytes) for line in ready.ledger],
        num_blocks=ready.num_blocks,
        block_size=ready.block_size,
        max_model_len=ready.max_model_len,
    )
    return [
        f"octavo serves {name} on {url}",
        f"  {ready.dtype} weights, {ready.kv_cache_dtype} cache, {ready.isa}, "
        f"{counted(ready.num_threads, 'thread')}",
        *(f"  {line}" for line in memory),
    ]


def ways_to_ask(url: str, name: str, ask: dict[str, Any], is_chat: bool, room: int) -> list[str]:
    """A line for curl and one for the openai package. `room`: tokens that an answer may have."""
    if is_chat:
        path, call, answer = "chat/completions", "chat.completions.create", "message.content"
    else:
        path, call, answer = "completions", "completions.create", "text"
    ask = {"model": name, **ask, "max_tokens": min(MAX_TOKENS, room)}
    # JSON of these is Python too.
    arguments = ", ".join(f"{key}={json.dumps(value)}" for key, value in ask.items())
    python = (
        f'from openai import OpenAI; client = OpenAI(base_url="{url}/v1", api_key="none"); '
        f"print(client.{call}({arguments}).choices[0].{answer})"
    )
    return [
        f"curl {url}/v1/{path} -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(ask))}",
        "",
        "# with OpenAI's package (pip install openai):",
        f"{shlex.quote(sys.executable)} -c {shlex.quote(python)}",
    ]


def ways_to_embed(url: str, name: str) -> list[str]:
    """A line for curl."""
    ask = json.dumps({"model": name, "input": "Hello!"})
    return [
        f"curl {url}/v1/embeddings -H 'Content-Type: application/json' -d {shlex.quote(ask)}",
    ]


def num_chat_tokens(assets: "TextAssets", messages: list[dict[str, Any]]) -> int | None:
    """Tokens of a conversation; None if the model cannot take it: it has no chat template, or one that refuses it."""
    if assets.chat_template is None:
        return None
    try:
        text = assets.chat_template.render(messages)
    except TemplateError:
        return None
    return len(assets.tokenizer.encode(text, add_special_tokens=False))


def memory_in_use() -> int | None:
    """Bytes that this process and those it has started hold, shared pages counted once; None where /proc hides it."""
    pids = (os.getpid(), *descendants(os.getpid()))
    try:
        return sum(process_use(pid).pss_bytes for pid in pids)
    except OSError:
        return None
