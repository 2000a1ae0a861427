"""Write docs/reference from the code, or with --check say what is not current."""

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import typer
from fastapi import FastAPI

from octavo import config, errors
from octavo.checkpoints.named_models import NAMED_MODELS
from octavo.cli.app import app
from octavo.cli.vllm_flags import FOREIGN_FLAGS
from octavo.core import sampling_params, vllm_options
from octavo.engine.client import EngineClient
from octavo.models.encoder import ARCHITECTURES as ENCODERS
from octavo.offline import arguments
from octavo.server import json_shape
from octavo.server.anthropic.requests import (
    COUNT_FIELDS,
    MESSAGES_FIELDS,
    CountTokensRequest,
    MessagesRequest,
)
from octavo.server.app import build_app
from octavo.server.json_body import BodyMemory
from octavo.server.kserve.parameters import PARAMETER_FIELDS
from octavo.server.kserve.parameters import GenerateParameters as TritonParameters
from octavo.server.kserve.requests import InferRequest, TritonGenerateRequest
from octavo.server.models.metrics import ModelsExposition
from octavo.server.models.registry import ModelRegistry
from octavo.server.models.routes import model_routes, server_routes
from octavo.server.models.settings import ModelSettings
from octavo.server.openai import limits
from octavo.server.openai.embeddings.request import EMBEDDINGS_FIELDS, EmbeddingsRequest
from octavo.server.openai.fields import NO_OTHERS, KnownFields, RequestBody
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
from octavo.server.tgi.requests import GenerateParameters as TgiParameters
from octavo.server.tgi.requests import GenerateRequest as TgiRequest

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
MEASURING = ("octavo bench", "octavo eval")
PLANNING = ("octavo plan", "octavo simulate")
"""How the commands begin that have a page of their own."""
REQUESTS: tuple[tuple[str, type[RequestBody], KnownFields], ...] = (
    ("/v1/completions", CompletionRequest, COMPLETION_FIELDS),
    ("/v1/chat/completions", ChatRequest, CHAT_FIELDS),
    ("/v1/responses", ResponsesRequest, RESPONSES_FIELDS),
    ("/v1/embeddings", EmbeddingsRequest, EMBEDDINGS_FIELDS),
    ("/v1/messages", MessagesRequest, MESSAGES_FIELDS),
    ("/v1/messages/count_tokens", CountTokensRequest, COUNT_FIELDS),
    ("/tokenize with a prompt", TokenizeCompletionRequest, TOKENIZE_FIELDS),
    ("/tokenize with messages", TokenizeChatRequest, TOKENIZE_FIELDS),
    ("/detokenize", DetokenizeRequest, TOKENIZE_FIELDS),
    ("/v1/prefixes/{name} (PUT) with a prompt", TextPrefixRequest, TOKENIZE_FIELDS),
    ("/v1/prefixes/{name} (PUT) with messages", ChatPrefixRequest, TOKENIZE_FIELDS),
    ("/generate", TgiRequest, GENERATE_FIELDS),
    ("/generate, its parameters", TgiParameters, TgiParameters.known),
    ("/v2/models/{name}/infer", InferRequest, NO_OTHERS),
    ("/v2/models/{name}/generate", TritonGenerateRequest, NO_OTHERS),
    ("/v2/models/{name}/generate, its parameters", TritonParameters, PARAMETER_FIELDS),
)
NOTE = "<!-- Written by `make docs` from the code. -->\n"


def main() -> None:
    """Write the pages; with --check only compare."""
    pages = {
        "cli.md": cli_page(),
        "cli-measuring.md": more_commands_page("measuring", MEASURING),
        "cli-planning.md": more_commands_page("planning", PLANNING),
        "vllm-flags.md": vllm_flags_page(),
        "http.md": http_page(),
        "metrics.md": metrics_page(),
        "sampling.md": sampling_page(),
        "errors.md": errors_page(),
        "models.md": models_page(),
    }
    stale = []
    for name, text in pages.items():
        path = FOLDER / name
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(str(path.relative_to(FOLDER.parents[1])))
    if stale:
        sys.exit(f"not current, run `make docs`: {', '.join(stale)}")


def cli_page() -> str:
    """The commands that run models, with their arguments and options."""
    parts = [
        "# The command line\n",
        NOTE,
        "Integers take a suffix: 1k is 1000, 1K is 1024. What goes wrong is one line on stderr and exit code 2. "
        "With `--output json` stdout holds one JSON object and nothing else. "
        "[Measuring](cli-measuring.md) and [planning](cli-planning.md) have pages of their own.\n",
    ]
    commands = _commands("octavo", typer.main.get_command(app))
    return "\n".join(
        [*parts, *_described(c for c in commands if not c[0].startswith(MEASURING + PLANNING))]
    )


def more_commands_page(title: str, prefixes: tuple[str, ...]) -> str:
    """The commands that begin so."""
    parts = [
        f"# The command line: {title}\n",
        NOTE,
        "[The other commands](cli.md), and what all have in common.\n",
    ]
    commands = _commands("octavo", typer.main.get_command(app))
    return "\n".join([*parts, *_described(c for c in commands if c[0].startswith(prefixes))])


def _described(commands: Iterable[tuple[str, Any]]) -> Iterator[str]:
    for name, command in commands:
        positional = [p for p in command.params if p.param_type_name == "argument"]
        options = [
            p
            for p in command.params
            if p.param_type_name == "option" and not p.hidden and "--help" not in p.opts
        ]
        usage = " ".join([name, *(_usage(p) for p in positional)])
        yield f"## {name}\n\n{inspect.cleandoc(command.help or '')}\n\n    {usage} [options]\n"
        if positional:
            rows = [[f"`{p.metavar or p.name}`", _default(p), p.help or ""] for p in positional]
            yield _table(["argument", "default", "meaning"], rows)
        if options:
            rows = [[_spelling(p), _default(p), p.help or ""] for p in options]
            yield _table(["option", "default", "meaning"], rows)


def vllm_flags_page() -> str:
    """vLLM's flags that set nothing."""
    accepted = [f for f in FOREIGN_FLAGS if f.harmless is None]
    refused = [f for f in FOREIGN_FLAGS if f.harmless is not None]
    rows = [
        [_code(f.spellings), ", ".join(f"`{v}`" for v in f.harmless or ()) or "-", f.reason]
        for f in refused
    ]
    return "\n".join(
        [
            "# Flags of `vllm serve` and arguments of `LLM` without a setting here\n",
            NOTE,
            "Flags with the same meaning have the same name: see [the command line](cli.md).\n",
            "## Accepted, with one line that says that they have no effect\n",
            _table(["flag", "because"], [[_code(f.spellings), f.reason] for f in accepted]),
            "## Refused, because they would change answers or guard something\n",
            _table(["flag", "accepted values", "because"], rows),
            "## Arguments of `LLM`\n",
            f"Accepted, because they cannot change an answer: {_code(sorted(arguments.NO_EFFECT))}.\n",
            "Accepted only with what Octavo does:\n",
            _table(
                ["argument", "accepted values"],
                [
                    [f"`{name}`", ", ".join(f"`{value!r}`" for value in values)]
                    for name, values in sorted(arguments.ACCEPTED_VALUES.items())
                ],
            ),
        ]
    )


def http_page() -> str:
    """Routes, and the fields of the requests that generate."""
    parts = [
        "# The HTTP API\n",
        NOTE,
        "Requests and responses have the shapes of the OpenAI API with vLLM's additions, those of `/v1/messages` the shapes of "
        "Anthropic's; `/docs` of a running server has the schemas. [Fields](fields.md) shows what each does, "
        "[options together](options.md) which go together. "
        'Errors are `{"error": {"message", "type", "param", "code"}}`. A field that is null has its default. '
        "An unknown field is named in the response header `x-octavo-ignored-fields`, or refused with "
        "`--strict-requests`.\n",
        _table(["route", "what it does"], _routes(application())),
        "## Several models\n",
        "A server of several models has these routes for the server and its models; all others belong to the model that "
        "answers. Which one that is, and why, is in the response headers `x-octavo-model` and `x-octavo-model-choice` (name, "
        "alias, default, short prompt, fallback).\n",
        _table(["route", "what it does"], _routes(models_application())),
        "## Limits\n",
        "What a single request may ask for; more is refused with 400. The size of the body, the number of prompts and "
        "`logprobs` of a token have limits that flags set: see [the command line](cli.md).\n",
        _table(
            ["at most", "of what"],
            [
                [f"{value:,}", text]
                for module in (limits, json_shape)
                for value, text in _constants(module)
            ],
        ),
    ]
    for title, model, known in REQUESTS:
        parts += _fields_of(title, model, known)
    return "\n".join(parts)


def _fields_of(title: str, model: type[RequestBody], known: KnownFields) -> list[str]:
    """What becomes of each field of a request."""
    parts = [f"## POST {title}\n", f"Honoured: {_code(model.model_fields)}.\n"]
    if known.no_effect:
        names = _code(sorted(known.no_effect))
        parts.append(f"Accepted, because they cannot change the answer: {names}.\n")
    if known.refused:
        refused = [[f"`{name}`", known.refused[name].reason] for name in sorted(known.refused)]
        parts += [
            "Refused with 400 unless they say what is done anyway:\n",
            _table(["field", "because"], refused),
        ]
    return parts


def _routes(described: FastAPI) -> list[list[str]]:
    return [
        [f"`{method.upper()} {path}`", route.get("description", "")]
        for path, methods in sorted(described.openapi()["paths"].items())
        for method, route in methods.items()
    ]


def metrics_page() -> str:
    """Every metric."""
    families: dict[str, tuple[str, str, list[str]]] = {}
    for family in application().state.serving.exposition.collect():
        name = family.name.removeprefix("octavo_").removeprefix("vllm:")
        prefix = family.name.removesuffix(name)
        kind, text, prefixes = families.setdefault(name, (family.type, family.documentation, []))
        assert (kind, text) == (family.type, family.documentation)
        prefixes.append(prefix)
    rows = [
        [_code(prefix + name for prefix in prefixes), kind, text]
        for name, (kind, text, prefixes) in families.items()
    ]
    return "\n".join(
        [
            "# Metrics\n",
            NOTE,
            "`GET /metrics`, for Prometheus. Names with `vllm:` are vLLM's, those with `tgi_` Text Generation Inference's, those with `nv_` Triton's. Units are seconds, tokens, blocks, slots (places "
            "of one token), bytes, and shares from 0 to 1. Counters end in `_total` in the text format.\n",
            _table(["name", "kind", "meaning"], rows),
            "## Several models\n",
            "A server of several models has these besides; in the others the label `model_name` tells the models apart.\n",
            _table(
                ["name", "kind", "meaning"],
                [
                    [f"`{family.name}`", family.type, family.documentation]
                    for family in ModelsExposition(several_models(), {}).collect()
                ],
            ),
        ]
    )


def several_models() -> ModelRegistry:
    """One that is not loaded."""
    return ModelRegistry([ModelSettings("model", config.EngineConfig())], config.ServerConfig())


def models_application() -> FastAPI:
    """The routes of a server of several models that belong to none of them."""
    registry = several_models()
    described = FastAPI()
    described.include_router(server_routes(registry, ModelsExposition(registry, {})))
    described.include_router(model_routes(registry, BodyMemory(1), 1.0))
    return described


def application() -> FastAPI:
    """The HTTP application without an engine, as far as it describes itself."""
    client = EngineClient(cast(Any, None))
    return build_app(client, lambda: cast(Any, None), config.ServerConfig())


def sampling_page() -> str:
    """The fields of SamplingParams."""
    docs = _field_docs(sampling_params, "SamplingParams")
    rows = []
    for field in fields(sampling_params.SamplingParams):
        default = field.default_factory() if callable(field.default_factory) else field.default
        rows.append([f"`{field.name}`", f"`{default!r}`", docs.get(field.name, "")])
    refused = [
        [f"`{name}`", ", ".join(f"`{value!r}`" for value in values), reason]
        for name, (reason, values) in sorted(vllm_options.REFUSED.items())
    ]
    return "\n".join(
        [
            "# Sampling parameters\n",
            NOTE,
            "Names, defaults and limits are vLLM's. A value outside its limits is refused with the limit and the "
            "given value.\n",
            _table(["name", "default", "notes"], rows),
            "## Options that only vLLM has\n",
            f"Accepted, because they cannot change an answer here: {_code(sorted(vllm_options.NO_EFFECT))}.\n",
            "Refused by name, except with the values that ask for nothing:\n",
            _table(["name", "accepted values", "because"], refused),
        ]
    )


def errors_page() -> str:
    """The error tree."""
    rows = [
        [f"`{name}`", " ".join((value.__doc__ or "").split())]
        for name, value in vars(errors).items()
        if inspect.isclass(value)
    ]
    tree = inspect.cleandoc(errors.__doc__ or "").split("\n\n", 1)[1]
    return "\n".join(
        [
            "# Errors\n",
            NOTE,
            f"```\n{inspect.cleandoc(tree)}\n```\n",
            _table(["error", "when"], rows),
        ]
    )


def models_page() -> str:
    """Named models, formats and families."""
    # numpy comes with these; the other pages need none of it.
    from octavo.checkpoints.quants import QuantType
    from octavo.models.families import CONFIG_FAMILIES, GGUF_FAMILIES

    rows = [
        [
            f"`{m.name}`",
            f"`{m.file_name}`",
            f"{m.num_bytes:,}",
            "yes" if m.has_chat_template else "no",
            f"[{m.license.name}]({m.license.url})",
        ]
        for m in NAMED_MODELS.values()
    ]
    return "\n".join(
        [
            "# Models\n",
            NOTE,
            "A model is given as one of these names, as a path of a GGUF file or a Hugging Face folder, as a hub id "
            "`org/name`, or as a GGUF file of a hub id, `org/name:FILE.gguf` or `org/name:Q8_0`.\n",
            _table(["name", "file", "bytes", "chat", "licence"], rows),
            "A model without *chat* is a base model: it continues text (`/v1/completions`, `octavo generate`). For conversations "
            "it needs a template of yours: `--chat-template`.\n",
            f"- GGUF architectures: {_code(GGUF_FAMILIES)}",
            f"- GGUF number formats: {_code(quant.name for quant in QuantType)}",
            f"- Hugging Face architectures (safetensors): {_code(CONFIG_FAMILIES)}",
            f"- `--dtype`: {_code(config.DTYPES)}; `--kv-cache-dtype`: {_code(config.KV_CACHE_DTYPES)}",
            f"- Encoders (safetensors), for `/v1/embeddings` only: {_code(ENCODERS)}",
            f"- `--quantization`, of F32, F16 and BF16 weights: {_code(config.QUANTIZATIONS)}",
            "",
        ]
    )


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield name, command
        return
    for child_name, child in children.items():
        yield from _commands(f"{name} {child_name}", child)


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name
    return name if argument.required else f"[{name}]"


def _spelling(option: Any) -> str:
    value = f" {option.metavar}" if option.metavar and not option.is_flag else ""
    return _code([f"{name}{value}" for name in option.opts] + list(option.secondary_opts))


def _default(parameter: Any) -> str:
    value = getattr(parameter.default, "value", parameter.default)
    if parameter.required:
        return "required"
    return "" if value in (None, False, [], ()) else f"`{value}`"


def _constants(module: Any) -> Iterator[tuple[int, str]]:
    """Values and docstrings of a module's constants."""
    for target, doc in pairwise(ast.parse(inspect.getsource(module)).body):
        if isinstance(target, ast.Assign) and isinstance(doc, ast.Expr):
            (name,) = target.targets
            assert isinstance(name, ast.Name)
            text = ast.literal_eval(doc.value)
            yield getattr(module, name.id), " ".join(text.split())


def _field_docs(module: Any, class_name: str) -> dict[str, str]:
    """The strings that stand below the fields of a class."""
    tree = ast.parse(inspect.getsource(module))
    (body,) = (
        n.body for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == class_name
    )
    docs = {}
    for field, text in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            docs[field.target.id] = " ".join(str(text.value.value).split())
    return docs


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped) + "\n"


def _code(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    main()
