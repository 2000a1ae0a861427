"""Frozen settings, as the user gave them. `None` and `"auto"` become values in `octavo.resolve`, once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, TypeVar

from octavo.errors import ConfigError

BLOCK_SIZES = (16, 32, 64, 128)
"""Block sizes that the attention kernels read. The core itself takes any size from 1."""

MAX_PORT = 65535
DTYPES = ("auto", "float32", "float", "bfloat16")
QUANTIZATIONS = ("int8", "int4")
KV_CACHE_DTYPES = ("auto", "float32", "bfloat16", "int8", "fp8", "fp8_e4m3")
TOOL_CALL_PARSERS = ("hermes", "llama3_json", "mistral")
REASONING_PARSERS = ("deepseek_r1", "qwen3", "mistral", "none")
DEFAULT_MODEL = "smollm2"

E = TypeVar("E", bound=Enum)


class SchedulingPolicy(str, Enum):
    """Order of admission from the waiting queue."""

    FCFS = "fcfs"
    PRIORITY = "priority"


class FairShareBy(str, Enum):
    """What tells tenants apart, who share the engine fairly."""

    NOTHING = "nothing"
    """All requests are one tenant's: first come, first served."""
    API_KEY = "api-key"
    """Requests without a key are one tenant's."""
    USER = "user"
    """The request's field `user`, within an API key. Clients must be trusted not to invent users."""


class Backend(str, Enum):
    """Which implementation of the `Runner` protocol computes the steps."""

    NATIVE = "native"
    REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Which model, and how its numbers are held."""

    model: str = DEFAULT_MODEL
    """A local path, a hub id, or a name that `octavo pull` knows."""
    tokenizer: str | None = None
    """A folder or tokenizer.json; None: the model's own."""
    revision: str | None = None
    """Branch, tag or commit of a hub id."""
    dtype: str = "auto"
    """auto keeps quantized weights quantized; float32 is exact; bfloat16 rounds weights and activations."""
    max_model_len: int | None = None
    """Longest sequence in tokens; None: what the model allows and the block pool can hold."""
    quantization: str | None = None
    """Quantize float weights when they are loaded: int8 with a scale for each output, int4 with one for 32 inputs."""

    def __post_init__(self) -> None:
        _one_of("dtype", self.dtype, DTYPES)
        if self.quantization is not None:
            _one_of("quantization", self.quantization, QUANTIZATIONS)
        _at_least("max_model_len", self.max_model_len, 1)


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """The block pool."""

    block_size: int = 16
    """Tokens in a block."""
    num_blocks: int | None = None
    """Blocks in the pool; None: from the memory that is available (`--num-blocks-override`)."""
    kv_cache_memory_bytes: int | None = None
    """Bytes of the pool; None: from the memory that is available."""
    kv_cache_dtype: str = "auto"
    """auto is float32 with dtype float32, else bfloat16; int8 has a scale for each token and head; fp8 is E4M3."""
    prefix_caching: bool = True
    """Keep blocks for requests that begin alike, until others need them."""
    swap_space: int = 0
    """Bytes of a file for pages of preempted requests; 0: none."""
    swap_dir: str | None = None
    """Folder of that file; None: the system's temporary folder."""
    kv_cache_dir: str | None = None
    """Folder in which the prefix cache outlives the process; None: it does not."""
    kv_cache_dir_size: int = 4 * 1024**3
    """Most bytes in that folder."""
    named_prefix_share: float = 0.25
    """Most of the pool that named prefixes may hold."""

    def __post_init__(self) -> None:
        if not 0 <= self.named_prefix_share <= 1:
            raise ConfigError(
                f"named_prefix_share must be from 0 to 1; given: {self.named_prefix_share}"
            )
        _one_of("block_size", self.block_size, BLOCK_SIZES)
        _one_of("kv_cache_dtype", self.kv_cache_dtype, KV_CACHE_DTYPES)
        _at_least("num_blocks", self.num_blocks, 1)
        _at_least("kv_cache_memory_bytes", self.kv_cache_memory_bytes, 1)
        _at_least("swap_space", self.swap_space, 0)
        _at_least("kv_cache_dir_size", self.kv_cache_dir_size, 1)
        if self.swap_dir is not None and self.swap_space == 0:
            raise ConfigError(
                f"swap_dir has no effect without swap_space: give both; given: {self.swap_dir}"
            )
        if self.kv_cache_dir is not None and not self.prefix_caching:
            raise ConfigError(
                "kv_cache_dir keeps the prefix cache, which is turned off: give one of both; "
                f"given: {self.kv_cache_dir}"
            )


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """How much runs at once."""

    max_num_batched_tokens: int = 2048
    """Tokens computed in one step, prompts and decodes together."""
    max_num_seqs: int = 256
    """Sequences in one step."""
    policy: SchedulingPolicy = SchedulingPolicy.FCFS
    """Order of the waiting queue."""
    max_num_queued_reqs: int = 4096
    """Waiting requests; one more is refused with 429."""
    max_num_queued_tokens: int = 1_000_000
    """Prompt tokens of requests whose prompts are not computed; more are refused with 429. One request may always wait."""
    target_itl_ms: float | None = None
    """Most time between two tokens of an answer: steps with prompts are kept as short. None: their size is fixed."""

    def __post_init__(self) -> None:
        _at_least("max_num_batched_tokens", self.max_num_batched_tokens, 1)
        _at_least("max_num_seqs", self.max_num_seqs, 1)
        _at_least("max_num_queued_reqs", self.max_num_queued_reqs, 1)
        _at_least("max_num_queued_tokens", self.max_num_queued_tokens, 1)
        _above("target_itl_ms", self.target_itl_ms, 0)
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least "
                f"max_num_seqs ({self.max_num_seqs}): every running sequence needs one token a step"
            )


@dataclass(frozen=True, slots=True)
class SpeculationConfig:
    """Guessing tokens ahead, from what the text itself repeats. No answer depends on it."""

    num_speculative_tokens: int = 7
    """Most tokens guessed for one sequence in a step."""
    prompt_lookup_max: int = 4
    """Longest run of last tokens that is looked up."""
    prompt_lookup_min: int = 2
    """Shortest run."""

    def __post_init__(self) -> None:
        _at_least("num_speculative_tokens", self.num_speculative_tokens, 1)
        _at_least("prompt_lookup_min", self.prompt_lookup_min, 1)
        _at_least("prompt_lookup_max", self.prompt_lookup_max, self.prompt_lookup_min)

    @classmethod
    def of_vllm(cls, options: Mapping[str, Any]) -> "SpeculationConfig":
        """vLLM's `speculative_config`. Raises ConfigError for a method or an option that is not here."""
        values = {**options}
        method = values.pop("method", None)
        if method != "ngram":
            raise ConfigError(f'speculative_config: method must be "ngram"; given: {method!r}')
        for name, value in values.items():
            if name not in {setting.name for setting in fields(cls)}:
                raise ConfigError(f"speculative_config: {name} is not supported; given: {value!r}")
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(
                    f"speculative_config: {name} must be an integer; given: {value!r}"
                )
        bounds = [
            values[name] for name in ("prompt_lookup_min", "prompt_lookup_max") if name in values
        ]
        if len(bounds) == 1:  # as in vLLM: the other is the same
            values["prompt_lookup_min"] = values["prompt_lookup_max"] = bounds[0]
        return cls(**values)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything that the engine needs to be built."""

    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    speculation: bool | None = None
    """None: on with the native backend, or if `speculative_config` is given."""
    speculative_config: SpeculationConfig | None = None
    """None: Octavo's own."""
    backend: Backend = Backend.NATIVE
    num_threads: int | None = None
    """Compute threads; None: the cores that affinity and cgroup quota leave."""
    cpus: tuple[int, ...] | None = None
    """Logical CPUs that the engine's process keeps to, so that several engines do not meet; None: all it may use."""
    seed: int | None = None
    """Seeds of requests that bring none are derived from this and their order; None: drawn at random."""
    max_logprobs: int = 20
    """Largest `logprobs` a request may ask for; -1: no limit."""

    def __post_init__(self) -> None:
        _at_least("num_threads", self.num_threads, 1)
        _at_least("max_logprobs", self.max_logprobs, -1)
        if self.speculation is False and self.speculative_config is not None:
            raise ConfigError(
                "speculation is off, so speculative_config would have no effect: give one"
            )


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The HTTP front end."""

    host: str = "127.0.0.1"
    port: int = 8000
    served_model_names: tuple[str, ...] = ()
    """Names that requests may use; empty: the name given to `serve`. The first is echoed in responses."""
    chat_template: str | None = None
    """A Jinja file or the template itself; None: the model's own."""
    tool_call_parser: str | None = None
    """How the model writes tool calls; None: as its chat template shows."""
    reasoning_parser: str | None = None
    """How the model marks its thoughts; None: as its chat template shows; none: they stay in the content."""
    trust_request_chat_template: bool = False
    """Take `chat_template` from requests. Templates are programs, if sandboxed ones."""
    strict_requests: bool = False
    """Refuse unknown request fields with 400 instead of naming them in x-octavo-ignored-fields."""
    shutdown_timeout_s: float = 30.0
    """How long SIGTERM lets running requests finish."""
    slow_client_timeout_s: float = 30.0
    """A client that takes nothing of its answer for this long, or sends too little of its request, is cut off."""
    max_body_bytes: int = 16 * 1024 * 1024
    """Largest request body."""
    max_prompts_per_request: int = 1024
    """Longest list of prompts in one request."""
    allowed_origins: tuple[str, ...] = ()
    """Origins that browsers may call from (CORS); empty: none, `*`: all."""
    allowed_methods: tuple[str, ...] = ("*",)
    """Methods that browsers may use from there."""
    allowed_headers: tuple[str, ...] = ("*",)
    """Headers that browsers may send from there."""
    allow_credentials: bool = False
    """Let browsers send cookies and the like from there."""
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    """Where any are set, every route but /health asks for one of them."""
    api_key_file: str | None = None
    """More keys, one a line."""
    ssl_certfile: str | None = None
    """PEM file with the server's certificate and those that it is signed by; the server then speaks HTTPS."""
    ssl_keyfile: str | None = None
    """PEM file with its private key; None: it is in `ssl_certfile`."""
    ssl_ca_certs: str | None = None
    """PEM file with the authorities that certificates of clients must come from."""
    ssl_cert_reqs: int = 0
    """Whether clients show a certificate: 0 no, 1 if they have one, 2 always."""
    root_path: str = ""
    """What a proxy puts in front of all paths."""
    disable_docs: bool = False
    """No /docs, /redoc and /openapi.json."""
    request_timeout_s: float | None = None
    """Longest time from the arrival of a request to its last token; requests may ask for less. None: no limit."""
    fair_share_by: FairShareBy = FairShareBy.API_KEY
    """Whose requests are one tenant's. Tenants that wait get equally many tokens."""
    salt_cache_by_api_key: bool = False
    """Only requests with the same API key share prefixes: how long one takes tells nobody else what it begins with."""
    api_server_count: int = 1
    """Front end processes over the one engine; the kernel divides connections between them."""
    log_requests: bool = False
    """One line per request, never with its text."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= MAX_PORT:
            raise ConfigError(f"port must be from 0 to {MAX_PORT}; given: {self.port}")
        _at_least("shutdown_timeout", self.shutdown_timeout_s, 0)
        if not self.slow_client_timeout_s > 0:
            raise ConfigError(
                f"slow_client_timeout must be above 0; given: {self.slow_client_timeout_s}"
            )
        _above("request_timeout", self.request_timeout_s, 0)
        if self.tool_call_parser is not None:
            _one_of("tool_call_parser", self.tool_call_parser, TOOL_CALL_PARSERS)
        if self.reasoning_parser is not None:
            _one_of("reasoning_parser", self.reasoning_parser, REASONING_PARSERS)
        if self.ssl_certfile is None:
            for name in ("ssl_keyfile", "ssl_ca_certs", "ssl_cert_reqs"):
                if getattr(self, name):
                    raise ConfigError(f"{name} needs ssl_certfile")
        _one_of("ssl_cert_reqs", self.ssl_cert_reqs, (0, 1, 2))
        if self.ssl_cert_reqs and self.ssl_ca_certs is None:
            raise ConfigError("ssl_cert_reqs needs ssl_ca_certs: whose certificates are good")
        if self.ssl_ca_certs is not None and not self.ssl_cert_reqs:
            raise ConfigError("ssl_ca_certs needs ssl_cert_reqs 1 or 2: no client would be asked")
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise ConfigError(
                f"root_path must begin with / and not end with it; given: {self.root_path}"
            )
        if self.allow_credentials and "*" in self.allowed_origins:
            raise ConfigError(
                "allow_credentials needs allowed_origins that are named: with * every page on the web could act for a user"
            )
        _at_least("max_body_bytes", self.max_body_bytes, 1)
        _at_least("max_prompts_per_request", self.max_prompts_per_request, 1)
        _at_least("api_server_count", self.api_server_count, 1)


def choice_of(kind: type[E], name: str, value: object) -> E:
    """The member of an enumeration with this value. Raises ConfigError that lists the values."""
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(str(member.value) for member in kind)
        raise ConfigError(f"{name} must be one of {choices}; given: {value}") from None


def _above(name: str, value: float | None, bound: int) -> None:
    if value is not None and not (value > bound and math.isfinite(value)):
        raise ConfigError(f"{name} must be above {bound}; given: {value}")


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        choices = ", ".join(str(choice) for choice in allowed)
        raise ConfigError(f"{name} must be one of {choices}; given: {value}")


def _at_least(name: str, value: float | None, minimum: int) -> None:
    if value is not None and not value >= minimum:  # so that NaN is refused too
        raise ConfigError(f"{name} must be at least {minimum}; given: {value}")
