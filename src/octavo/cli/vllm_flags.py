"""Flags of `vllm serve` that set nothing in Octavo, so that existing command lines work or fail with a reason.

One that could change an answer or guards something is refused; any other is accepted with one line that says
that it has no effect.
"""

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any

import typer

from octavo.cli.signature import set_parameters
from octavo.errors import ConfigError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ForeignFlag:
    """A flag of vLLM without a setting here."""

    spellings: tuple[str, ...]
    reason: str
    harmless: tuple[str, ...] | None = None
    """Values under which ignoring it changes nothing; None: all."""
    is_switch: bool = False

    @property
    def name(self) -> str:
        """The name it is talked about by."""
        return self.spellings[0]

    @property
    def variable(self) -> str:
        """The keyword under which its value reaches the command."""
        return "vllm_" + self.name.lstrip("-").replace("-", "_")


def _no_effect(names: str, reason: str, *, is_switch: bool = False) -> ForeignFlag:
    return ForeignFlag(tuple(names.split()), reason, is_switch=is_switch)


def _refused(
    names: str, reason: str, *, unless: tuple[str, ...] = (), is_switch: bool = False
) -> ForeignFlag:
    return ForeignFlag(tuple(names.split()), reason, harmless=unless, is_switch=is_switch)


_ONE = ("1",)
FOREIGN_FLAGS: tuple[ForeignFlag, ...] = (
    _no_effect("--enforce-eager", "there are no graphs to capture", is_switch=True),
    _no_effect("--gpu-memory-utilization", "the pool is sized from the memory that is available"),
    _no_effect("--enable-chunked-prefill", "long prompts are always split", is_switch=True),
    _no_effect("--async-scheduling", "scheduling takes a negligible part of a step", is_switch=True),
    _no_effect("--disable-log-stats", "/metrics has the statistics", is_switch=True),
    _no_effect("--disable-uvicorn-access-log", "requests are not logged unless asked for", is_switch=True),
    _no_effect("--uvicorn-log-level", "the front end logs warnings and errors"),
    _no_effect("--trust-remote-code", "code that comes with a model is never run", is_switch=True),
    _no_effect("--disable-custom-all-reduce", "one device is used", is_switch=True),
    _no_effect("--compilation-config -O", "kernels are compiled when Octavo is built"),
    _no_effect("--max-num-partial-prefills", "all waiting prompts share a step"),
    _no_effect("--max-long-partial-prefills", "all waiting prompts share a step"),
    _no_effect("--long-prefill-token-threshold", "all waiting prompts share a step"),
    _no_effect("--stream-interval", "each step's tokens are sent at once"),
    _no_effect("--prefix-caching-hash-algo", "prefixes are always known by BLAKE2b"),
    _no_effect("--cpu-offload-gb", "weights are in the machine's memory already"),
    _no_effect("--watermark", "pages are taken as tokens come"),
    _no_effect("--distributed-executor-backend", "one device is used"),
    _no_effect("--code-revision", "code that comes with a model is never run"),
    _no_effect("--max-loras", "no adapters in this version"),
    _no_effect("--max-lora-rank", "no adapters in this version"),
    _no_effect("--max-cpu-loras", "no adapters in this version"),
    _no_effect("--limit-mm-per-prompt", "prompts are text"),
    _no_effect("--kv-events-config", "no events of the cache are published"),
    _no_effect("--kv-cache-metrics", "/metrics has the statistics", is_switch=True),
    _no_effect("--kv-cache-metrics-sample", "/metrics has the statistics"),
    _no_effect("--otlp-traces-endpoint", "no traces are sent"),
    _no_effect("--collect-detailed-traces", "no traces are sent"),
    _no_effect("--enable-request-id-headers", "every response has its id", is_switch=True),
    _no_effect("--enable-prompt-tokens-details", "every usage has them", is_switch=True),
    _no_effect("--enable-server-load-tracking", "/load always answers", is_switch=True),
    _no_effect("--enable-per-request-metrics", "/metrics has the statistics", is_switch=True),
    _no_effect("--disable-log-requests", "requests are not logged unless asked for", is_switch=True),
    _no_effect("--disable-access-log-for-endpoints", "requests are not logged unless asked for"),
    _no_effect("--max-log-len", "texts are never logged"),
    _no_effect("--enable-log-outputs", "texts are never logged", is_switch=True),
    _no_effect("--enable-log-deltas", "texts are never logged", is_switch=True),
    _refused("--tensor-parallel-size -tp", "one device is used", unless=_ONE),
    _refused("--pipeline-parallel-size -pp", "one device is used", unless=_ONE),
    _refused("--data-parallel-size -dp", "one engine for each server", unless=_ONE),
    _refused("--load-format", "the files decide", unless=("auto", "gguf", "safetensors")),
    _refused("--tokenizer-mode", "the tokenizer's files decide", unless=("auto", "hf")),
    _refused("--generation-config", "the model's own is used", unless=("auto",)),
    _refused("--override-generation-config", "set the options in each request"),
    _refused("--hf-overrides", "a model's configuration is used as it is"),
    _refused("--rope-scaling", "a model's configuration is used as it is"),
    _refused("--rope-theta", "a model's configuration is used as it is"),
    _refused("--hf-token", "set HF_TOKEN in the environment, where other users cannot see it"),
    _refused("--download-dir", "set HF_HOME (hub) or OCTAVO_CACHE (named models)"),
    _refused("--enable-lora", "no adapters in this version", is_switch=True),
    _refused("--lora-modules", "no adapters in this version"),
    _no_effect("--enable-auto-tool-choice", "models may always call the tools of a request", is_switch=True),
    _refused("--structured-outputs-config", "set its options in the structured_outputs of each request"),
    _no_effect("--guided-decoding-backend", "there is one compiler of grammars"),
    _refused("--uds", "it listens on --host and --port"),
    _refused("--h11-max-incomplete-event-size", "headers may have 65536 bytes, bodies --max-body-bytes"),
    _refused("--h11-max-header-count", "headers may have 65536 bytes, however many there are"),
    _refused("--tokenizer-revision", "the tokenizer comes from the revision of the model, or from a path"),
    _refused("--model-impl", "models are computed by Octavo's own kernels", unless=("auto", "vllm")),
    _refused("--task", "only text is generated", unless=("auto", "generate")),
    _refused("--runner", "only text is generated", unless=("auto", "generate")),
    _refused("--convert", "models are used as they are", unless=("auto", "none")),
    _refused("--enable-expert-parallel", "one device is used", is_switch=True),
    _refused("--kv-transfer-config", "no keys and values are exchanged with other servers"),
    _refused("--enable-sleep-mode", "a server does not sleep", is_switch=True),
    _refused("--tool-parser-plugin", "no code from other packages is loaded"),
    _refused("--chat-template-content-format", "the template decides", unless=("auto",)),
    _refused("--default-chat-template-kwargs", "set chat_template_kwargs in each request"),
    _refused("--response-role", "answers are the assistant's", unless=("assistant",)),
    _refused("--return-tokens-as-token-ids", "set it in each request", is_switch=True),
    _refused("--enable-force-include-usage", "set stream_options in each request", is_switch=True),
    _refused("--enable-tokenizer-info-endpoint", "there is no such route", is_switch=True),
    _refused("--logits-processors", "no code from other packages is loaded"),
    _refused("--logprobs-mode", "log-probabilities are the model's own", unless=("raw_logprobs",)),
    _refused("--middleware", "no middleware from other packages is loaded"),
)  # fmt: skip


def accepts_vllm_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags above, hidden from its help. Raises ConfigError for those that are refused."""

    @wraps(command)
    def run(**arguments: Any) -> None:
        for flag in FOREIGN_FLAGS:
            value = arguments.pop(flag.variable)
            if value is not None:
                _check(flag, value)
        command(**arguments)

    own = inspect.signature(command).parameters.values()
    set_parameters(run, [*own, *map(_parameter, FOREIGN_FLAGS)])
    return run


def _check(flag: ForeignFlag, value: str | bool) -> None:
    if flag.harmless is None:
        logger.warning("%s has no effect: %s", flag.name, flag.reason)
    elif value is not False and value not in flag.harmless:
        raise ConfigError(f"{flag.name} is a flag of vLLM that is not supported: {flag.reason}")


def _parameter(flag: ForeignFlag) -> inspect.Parameter:
    names = flag.spellings
    if flag.is_switch:
        names = (f"{flag.name}/--no-{flag.name.removeprefix('--')}",)
    annotation = bool | None if flag.is_switch else str | None
    return inspect.Parameter(
        flag.variable,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[annotation, typer.Option(*names, hidden=True)],
    )
