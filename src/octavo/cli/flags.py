"""Command-line flags, in vLLM's spelling, as a table: which setting each one sets, and how it is read.

Defaults are those of the settings' own classes. A command lists the flags it takes with `takes_flags` and
receives one `Settings` value.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, auto
from functools import wraps
from typing import Annotated, Any

import typer

from octavo.cli.numbers import parse_count, parse_gib, parse_length
from octavo.cli.signature import set_parameters
from octavo.cli.vllm_arguments import texts
from octavo.config import (
    BLOCK_SIZES,
    DTYPES,
    KV_CACHE_DTYPES,
    QUANTIZATIONS,
    REASONING_PARSERS,
    TOOL_CALL_PARSERS,
    Backend,
    CacheConfig,
    EngineConfig,
    FairShareBy,
    ModelConfig,
    SchedulerConfig,
    SchedulingPolicy,
    ServerConfig,
    SpeculationConfig,
    choice_of,
)
from octavo.core.sampling_params import SamplingParams
from octavo.errors import ConfigError


class Reads(Enum):
    """How a flag's value is read."""

    TEXT = auto()
    TEXTS = auto()
    """Any number of times."""
    COUNT = auto()
    """An integer with an optional suffix, 1k = 1000, 1K = 1024."""
    LENGTH = auto()
    """Likewise, and `auto` or -1 for no value."""
    INTEGER = auto()
    """A plain integer, negative ones too."""
    REAL = auto()
    GIB = auto()
    """Bytes, as GiB or with a suffix."""
    SWITCH = auto()
    """`--x` and `--no-x`."""


class Group(Enum):
    """What flags are about."""

    MODEL = "Model"
    MEMORY = "Memory and batching"
    SERVER = "Server"
    SAMPLING = "Sampling"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. `target` is the setting, as class and field, e.g. `cache.block_size`."""

    name: str
    target: str
    group: Group
    reads: Reads
    help: str
    choices: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Other spellings."""

    @property
    def variable(self) -> str:
        """The keyword under which the value reaches the command."""
        return self.target.replace(".", "__")

    @property
    def spellings(self) -> tuple[str, ...]:
        """All names, as typer declares them."""
        if self.reads is Reads.SWITCH:
            return (f"{self.name}/--no-{self.name.removeprefix('--')}",)
        return (self.name, *self.also)

    @property
    def metavar(self) -> str | None:
        """What stands for the value in `--help`."""
        return (
            None if self.reads is Reads.SWITCH else "|".join(self.choices) or _METAVARS[self.reads]
        )


def _choices(kind: type[Enum]) -> tuple[str, ...]:
    return tuple(str(member.value) for member in kind)


FLAGS: tuple[Flag, ...] = (
    Flag("--tokenizer", "model.tokenizer", Group.MODEL, Reads.TEXT,
         "Folder or tokenizer.json to use instead of the model's own."),
    Flag("--revision", "model.revision", Group.MODEL, Reads.TEXT,
         "Branch, tag or commit of a hub id."),
    Flag("--dtype", "model.dtype", Group.MODEL, Reads.TEXT,
         "auto keeps quantized weights quantized; float32 is exact.", choices=DTYPES),
    Flag("--quantization", "model.quantization", Group.MODEL, Reads.TEXT,
         "Quantize float weights when they are loaded.", choices=QUANTIZATIONS, also=("-q",)),
    Flag("--backend", "engine.backend", Group.MODEL, Reads.TEXT,
         "reference is plain numpy: slow, and the specification.", choices=_choices(Backend)),
    Flag("--threads", "engine.num_threads", Group.MODEL, Reads.COUNT,
         "Compute threads [default: the cores this process may use]."),
    Flag("--seed", "engine.seed", Group.MODEL, Reads.INTEGER,
         "Seeds of requests that bring none come from this and their order [default: at random]."),
    Flag("--max-logprobs", "engine.max_logprobs", Group.MODEL, Reads.INTEGER,
         "Most log-probabilities a request may ask for at each position; -1: no limit."),
    Flag("--max-model-len", "model.max_model_len", Group.MEMORY, Reads.LENGTH,
         "Longest sequence in tokens [default: what the model allows and the memory holds]."),
    Flag("--block-size", "cache.block_size", Group.MEMORY, Reads.COUNT,
         "Tokens in a page of the KV cache.", choices=tuple(map(str, BLOCK_SIZES))),
    Flag("--num-blocks-override", "cache.num_blocks", Group.MEMORY, Reads.COUNT,
         "Pages in the pool [default: from the memory that is available].",
         also=("--num-gpu-blocks-override",)),
    Flag("--kv-cache-memory-bytes", "cache.kv_cache_memory_bytes", Group.MEMORY, Reads.COUNT,
         "Bytes of the pool, e.g. 2G [default: from the memory that is available]."),
    Flag("--kv-cache-dtype", "cache.kv_cache_dtype", Group.MEMORY, Reads.TEXT,
         "auto is float32 with --dtype float32, else bfloat16.", choices=KV_CACHE_DTYPES),
    Flag("--enable-prefix-caching", "cache.prefix_caching", Group.MEMORY, Reads.SWITCH,
         "Keep pages for requests that begin alike, until others need them."),
    Flag("--swap-space", "cache.swap_space", Group.MEMORY, Reads.GIB,
         "GiB on disk for pages of preempted requests, or bytes with a suffix, as in 512M."),
    Flag("--swap-dir", "cache.swap_dir", Group.MEMORY, Reads.TEXT,
         "Folder of the swap space [default: the system's temporary folder]."),
    Flag("--kv-cache-dir", "cache.kv_cache_dir", Group.MEMORY, Reads.TEXT,
         "Folder in which pages of the prefix cache outlive the server [default: they do not]."),
    Flag("--kv-cache-dir-size", "cache.kv_cache_dir_size", Group.MEMORY, Reads.COUNT,
         "Most bytes in that folder."),
    Flag("--max-num-batched-tokens", "scheduler.max_num_batched_tokens", Group.MEMORY, Reads.COUNT,
         "Tokens computed in one step, prompts and decodes together."),
    Flag("--max-num-seqs", "scheduler.max_num_seqs", Group.MEMORY, Reads.COUNT,
         "Sequences in one step."),
    Flag("--scheduling-policy", "scheduler.policy", Group.MEMORY, Reads.TEXT,
         "Order of the waiting queue.", choices=_choices(SchedulingPolicy)),
    Flag("--max-num-queued-reqs", "scheduler.max_num_queued_reqs", Group.MEMORY, Reads.COUNT,
         "Requests that may wait; one more gets a 429."),
    Flag("--max-num-queued-tokens", "scheduler.max_num_queued_tokens", Group.MEMORY, Reads.COUNT,
         "Prompt tokens that may wait; one request may, however long, others beyond it get a 429."),
    Flag("--target-itl-ms", "scheduler.target_itl_ms", Group.MEMORY, Reads.REAL,
         "Milliseconds between two tokens of an answer that no prompt of another may exceed: steps are sized by what "
         "they take here [default: steps of --max-num-batched-tokens]."),
    Flag("--named-prefix-share", "cache.named_prefix_share", Group.MEMORY, Reads.REAL,
         "Share of the pages that named prefixes (/v1/prefixes) may hold at most."),
    Flag("--speculation", "engine.speculation", Group.MEMORY, Reads.SWITCH,
         "Guess tokens that repeat the text so far, where a small batch leaves time; no answer depends on it "
         "[default: on with the native backend]."),
    Flag("--speculative-config", "engine.speculative_config", Group.MEMORY, Reads.TEXT,
         'How far to guess, as in {"method": "ngram", "num_speculative_tokens": 7, "prompt_lookup_max": 4, '
         '"prompt_lookup_min": 2}.'),
    Flag("--host", "server.host", Group.SERVER, Reads.TEXT, "Address to listen on."),
    Flag("--port", "server.port", Group.SERVER, Reads.INTEGER, "Port to listen on; 0: any free one."),
    Flag("--served-model-name", "server.served_model_names", Group.SERVER, Reads.TEXTS,
         "Name of the model in requests; repeat it for more [default: as given]."),
    Flag("--chat-template", "server.chat_template", Group.SERVER, Reads.TEXT,
         "Jinja file, or the template itself, instead of the model's own."),
    Flag("--tool-call-parser", "server.tool_call_parser", Group.SERVER, Reads.TEXT,
         "How the model writes tool calls [default: as its chat template shows].", choices=TOOL_CALL_PARSERS),
    Flag("--reasoning-parser", "server.reasoning_parser", Group.SERVER, Reads.TEXT,
         "How the model marks its thoughts [default: as its chat template shows]; none leaves them in the content.",
         choices=REASONING_PARSERS),
    Flag("--trust-request-chat-template", "server.trust_request_chat_template", Group.SERVER,
         Reads.SWITCH, "Let requests bring a chat template of their own."),
    Flag("--strict-requests", "server.strict_requests", Group.SERVER, Reads.SWITCH,
         "Refuse unknown request fields instead of naming them in a response header."),
    Flag("--shutdown-timeout", "server.shutdown_timeout_s", Group.SERVER, Reads.REAL,
         "Seconds that running requests get to finish after SIGTERM."),
    Flag("--slow-client-timeout", "server.slow_client_timeout_s", Group.SERVER, Reads.REAL,
         "Seconds for a client to take some of its answer, or to send its request, before it is cut off."),
    Flag("--max-body-bytes", "server.max_body_bytes", Group.SERVER, Reads.COUNT,
         "Largest request body."),
    Flag("--max-prompts-per-request", "server.max_prompts_per_request", Group.SERVER, Reads.COUNT,
         "Longest list of prompts in one request."),
    Flag("--allowed-origins", "server.allowed_origins", Group.SERVER, Reads.TEXTS,
         "Origin that browsers may call from (CORS), or *; repeat it for more [default: none]."),
    Flag("--allowed-methods", "server.allowed_methods", Group.SERVER, Reads.TEXTS,
         "Method that they may use; repeat it for more."),
    Flag("--allowed-headers", "server.allowed_headers", Group.SERVER, Reads.TEXTS,
         "Header that they may send; repeat it for more."),
    Flag("--allow-credentials", "server.allow_credentials", Group.SERVER, Reads.SWITCH,
         "Let browsers send cookies from these origins."),
    Flag("--api-key", "server.api_keys", Group.SERVER, Reads.TEXTS,
         "Key that every request but those to /health must bring; repeat it for more. Other users of the machine can "
         "see it: better use --api-key-file."),
    Flag("--api-key-file", "server.api_key_file", Group.SERVER, Reads.TEXT,
         "File with such keys, one a line."),
    Flag("--ssl-certfile", "server.ssl_certfile", Group.SERVER, Reads.TEXT,
         "PEM file with the server's certificate: HTTPS instead of HTTP."),
    Flag("--ssl-keyfile", "server.ssl_keyfile", Group.SERVER, Reads.TEXT,
         "PEM file with its private key [default: it is in the other]."),
    Flag("--ssl-ca-certs", "server.ssl_ca_certs", Group.SERVER, Reads.TEXT,
         "PEM file with the authorities of clients' certificates."),
    Flag("--ssl-cert-reqs", "server.ssl_cert_reqs", Group.SERVER, Reads.INTEGER,
         "Whether clients show a certificate: 0 no, 1 if they have one, 2 always."),
    Flag("--root-path", "server.root_path", Group.SERVER, Reads.TEXT,
         "What a proxy puts in front of all paths, as in /llm."),
    Flag("--disable-fastapi-docs", "server.disable_docs", Group.SERVER, Reads.SWITCH,
         "No /docs, /redoc and /openapi.json."),
    Flag("--request-timeout", "server.request_timeout_s", Group.SERVER, Reads.REAL,
         "Seconds from a request's arrival to its last token; requests may ask for less [default: no limit]."),
    Flag("--fair-share-by", "server.fair_share_by", Group.SERVER, Reads.TEXT,
         "What tells tenants apart; those who wait get equally many tokens.", choices=_choices(FairShareBy)),
    Flag("--salt-cache-by-api-key", "server.salt_cache_by_api_key", Group.SERVER, Reads.SWITCH,
         "Share pages of equal beginnings only between requests with the same API key."),
    Flag("--api-server-count", "server.api_server_count", Group.SERVER, Reads.COUNT,
         "Front end processes, where one does not keep up with its clients."),
    Flag("--enable-log-requests", "server.log_requests", Group.SERVER, Reads.SWITCH,
         "Log one line for each request, never its text."),
    Flag("--max-tokens", "sampling.max_tokens", Group.SAMPLING, Reads.COUNT,
         "Most tokens to generate [default: 256; in octavo chat 512]."),
    Flag("--min-tokens", "sampling.min_tokens", Group.SAMPLING, Reads.COUNT,
         "Tokens to generate before an end token may come."),
    Flag("--temperature", "sampling.temperature", Group.SAMPLING, Reads.REAL,
         "0 always takes the most likely token [default: the model's own; if it has none, 0.2 with "
         "--top-p 0.9 in conversations, else 1]."),
    Flag("--top-p", "sampling.top_p", Group.SAMPLING, Reads.REAL,
         "Draw from the most likely tokens that together have this probability."),
    Flag("--top-k", "sampling.top_k", Group.SAMPLING, Reads.INTEGER,
         "Draw from this many most likely tokens."),
    Flag("--min-p", "sampling.min_p", Group.SAMPLING, Reads.REAL,
         "Drop tokens less likely than this share of the most likely one."),
    Flag("--stop", "sampling.stop", Group.SAMPLING, Reads.TEXTS,
         "Text that ends the answer; repeat it for more."),
    Flag("--repetition-penalty", "sampling.repetition_penalty", Group.SAMPLING, Reads.REAL,
         "Above 1: makes tokens of prompt and answer less likely."),
    Flag("--presence-penalty", "sampling.presence_penalty", Group.SAMPLING, Reads.REAL,
         "Above 0: makes tokens of the answer less likely."),
    Flag("--frequency-penalty", "sampling.frequency_penalty", Group.SAMPLING, Reads.REAL,
         "Likewise, for each time the token has come."),
    Flag("--ignore-eos", "sampling.ignore_eos", Group.SAMPLING, Reads.SWITCH,
         "Go on after the end token."),
)  # fmt: skip

ALONE_FLAGS = (
    "--tokenizer", "--revision", "--dtype", "--quantization", "--backend", "--threads", "--seed", "--max-model-len",
    "--block-size", "--num-blocks-override", "--kv-cache-memory-bytes", "--kv-cache-dtype",
    "--max-num-batched-tokens", "--speculation", "--speculative-config",
)  # fmt: skip
"""Flags of commands that run a model for one user."""

CHAT_SAMPLING: Mapping[str, float] = {"temperature": 0.2, "top_p": 0.9}
"""Of conversations, where neither the user nor the model's authors set a temperature: small models wander at 1."""

_SECTIONS: Mapping[str, type] = {
    "model": ModelConfig,
    "cache": CacheConfig,
    "scheduler": SchedulerConfig,
    "engine": EngineConfig,
    "server": ServerConfig,
    "sampling": SamplingParams,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the flags of a command say, by section and field."""

    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def engine(self, model: str, **own_scheduling: Any) -> EngineConfig:
        """The engine's settings for a model; the keywords are what the command itself sets. Raises ConfigError."""
        values = {**self.values.get("engine", {})}
        if "backend" in values:
            values["backend"] = choice_of(Backend, "backend", values["backend"])
        if values.get("speculative_config") is not None:
            values["speculative_config"] = _speculation(values["speculative_config"])
        scheduler = {**self.values.get("scheduler", {}), **own_scheduling}
        if "policy" in scheduler:
            scheduler["policy"] = choice_of(
                SchedulingPolicy, "scheduling_policy", scheduler["policy"]
            )
        return EngineConfig(
            model=ModelConfig(model=model, **self.values.get("model", {})),
            cache=CacheConfig(**self.values.get("cache", {})),
            scheduler=SchedulerConfig(**scheduler),
            **values,
        )

    def server(self) -> ServerConfig:
        """The HTTP front end's settings. Raises ConfigError."""
        values = {**self.values.get("server", {})}
        if "fair_share_by" in values:
            values["fair_share_by"] = choice_of(
                FairShareBy, "fair_share_by", values["fair_share_by"]
            )
        return ServerConfig(**values)

    def sampling(self, defaults: Mapping[str, Any]) -> SamplingParams:
        """Sampling options: those given, else `defaults`. Raises InvalidParameterError."""
        return SamplingParams(**{**defaults, **self._given_sampling()})

    def chat_defaults(self, model_defaults: Mapping[str, Any]) -> Mapping[str, Any]:
        """The defaults of a conversation: CHAT_SAMPLING unless the user or the model's authors set a temperature."""
        if "temperature" in model_defaults or "temperature" in self._given_sampling():
            return model_defaults
        return {**CHAT_SAMPLING, **model_defaults}

    def check_sampling(self, max_tokens: int) -> None:
        """Raise InvalidParameterError now for options that no model could use."""
        self.sampling({"max_tokens": max_tokens})

    def _given_sampling(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.values.get("sampling", {}).items()
            if value not in (None, ())
        }


def _speculation(text: str) -> SpeculationConfig:
    try:
        options = json.loads(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise ConfigError(f"--speculative-config takes a JSON object; given: {text}")
    return SpeculationConfig.of_vllm(options)


def takes_flags(*wanted: Group | str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these flags, by group or by name; it receives them as its keyword `settings`."""
    flags = [flag for flag in FLAGS if flag.group in wanted or flag.name in wanted]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**arguments: Any) -> None:
            values: dict[str, dict[str, Any]] = {}
            for flag in flags:
                section, name = flag.target.split(".")
                value = arguments.pop(flag.variable)
                # typer hands lists over; settings hold tuples.
                values.setdefault(section, {})[name] = (
                    texts(value) if flag.reads is Reads.TEXTS else value
                )
            command(**arguments, settings=Settings(values))

        own = [p for p in inspect.signature(command).parameters.values() if p.name != "settings"]
        set_parameters(run, [*own, *map(_parameter, flags)])
        return run

    return decorate


def default_of(flag: Flag) -> Any:
    """The default of the setting behind a flag. Sampling flags have none: the model's own come first."""
    section, name = flag.target.split(".")
    if section == "sampling":
        return None
    (setting,) = (f for f in fields(_SECTIONS[section]) if f.name == name)
    return setting.default.value if isinstance(setting.default, Enum) else setting.default


def _parameter(flag: Flag) -> inspect.Parameter:
    option = typer.Option(
        *flag.spellings,
        help=flag.help,
        metavar=flag.metavar,
        parser=_PARSERS.get(flag.reads),
        show_default=default_of(flag) not in (None, (), False),
    )
    default = default_of(flag)
    return inspect.Parameter(
        flag.variable,
        inspect.Parameter.KEYWORD_ONLY,
        default=list(default) if isinstance(default, tuple) else default,
        annotation=Annotated[_TYPES[flag.reads], option],
    )


_PARSERS: Mapping[Reads, Callable[[str], Any]] = {
    Reads.COUNT: parse_count,
    Reads.LENGTH: parse_length,
    Reads.GIB: parse_gib,
}
_METAVARS: Mapping[Reads, str] = {
    Reads.TEXT: "TEXT",
    Reads.TEXTS: "TEXT",
    Reads.COUNT: "INTEGER",
    Reads.LENGTH: "INTEGER|auto",
    Reads.INTEGER: "INTEGER",
    Reads.REAL: "NUMBER",
    Reads.GIB: "GIB",
}
_TYPES: Mapping[Reads, Any] = {
    Reads.TEXT: str | None,
    Reads.TEXTS: list[str] | None,
    Reads.COUNT: int | None,
    Reads.LENGTH: int | None,
    Reads.INTEGER: int | None,
    Reads.REAL: float | None,
    Reads.GIB: int | None,
    Reads.SWITCH: bool | None,
}
