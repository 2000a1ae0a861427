"""Generation in the caller's own process, under vLLM's names."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from octavo.config import (
    DEFAULT_MODEL,
    Backend,
    CacheConfig,
    EngineConfig,
    ModelConfig,
    SchedulerConfig,
    SchedulingPolicy,
    SpeculationConfig,
    choice_of,
)
from octavo.core.beam_search import BeamSearch, BeamSearchParams
from octavo.core.sampling_params import SamplingParams
from octavo.engine.build import build_engine
from octavo.engine.messages import EngineStats, Ready
from octavo.engine.metrics import engine_metrics
from octavo.engine.seeds import SeedSource
from octavo.errors import EngineDeadError, TemplateError, UnsupportedParameterError
from octavo.offline.arguments import check_other_arguments, default_sampling_params
from octavo.offline.batch import Batch, BatchRequest
from octavo.offline.beams import BeamBatch, beam_search_output
from octavo.offline.prompts import (
    ParsedPrompt,
    Prompts,
    naming_prompt,
    one_for_each,
    parse_prompt,
    split_prompts,
)
from octavo.outputs import BeamSearchOutput, Metric, RequestOutput
from octavo.resolve import GIB
from octavo.text.bad_words import with_bad_words
from octavo.text.chat_template import ChatTemplate, load_chat_template
from octavo.text.tokenizer import Tokenizer, load_tokenizer

Message: TypeAlias = Mapping[str, Any]
NO_QUEUE_LIMIT = 2**31 - 1
"""A caller that waits for all its prompts is not to be refused for their number."""


class LLM:
    """A model with its engine, in this process. Safe to use from several threads, which take turns.

    The arguments are vLLM's; those that it has and this class has not are accepted if they cannot change an answer, else
    refused with UnsupportedParameterError; unknown ones are a TypeError. Raises ConfigError, CheckpointError,
    DownloadError and PlatformError.

    Requests without a seed draw theirs from `seed` and their order: the same calls give the same answers.
    """

    _ended: str | None = None
    """Why it takes no more requests."""

    def __init__(
        self,
        model: str | Path = DEFAULT_MODEL,
        *,
        tokenizer: str | None = None,
        revision: str | None = None,
        dtype: str = "auto",
        seed: int = 0,
        max_model_len: int | None = None,
        block_size: int = 16,
        num_gpu_blocks_override: int | None = None,
        kv_cache_memory_bytes: int | None = None,
        kv_cache_dtype: str = "auto",
        enable_prefix_caching: bool | None = None,
        swap_space: float = 0,
        swap_dir: str | None = None,
        kv_cache_dir: str | None = None,
        kv_cache_dir_size: int = 4 * GIB,
        max_num_batched_tokens: int = 2048,
        max_num_seqs: int | None = None,
        scheduling_policy: str = "fcfs",
        max_logprobs: int = 20,
        quantization: str | None = None,
        generation_config: str = "auto",
        override_generation_config: Mapping[str, Any] | None = None,
        chat_template: str | None = None,
        num_threads: int | None = None,
        backend: str = "native",
        speculation: bool | None = None,
        speculative_config: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        check_other_arguments(others, LLM.__init__.__kwdefaults__ or {})
        config = EngineConfig(
            model=_model_config(model, tokenizer, revision, dtype, max_model_len, quantization),
            cache=CacheConfig(
                block_size, num_gpu_blocks_override, kv_cache_memory_bytes, kv_cache_dtype, enable_prefix_caching is not False,
                int(swap_space * GIB), swap_dir, kv_cache_dir, kv_cache_dir_size),
            scheduler=_scheduler_config(max_num_batched_tokens, max_num_seqs, scheduling_policy),
            speculation=speculation, speculative_config=_speculation_config(speculative_config), seed=seed,
            backend=choice_of(Backend, "backend", backend), num_threads=num_threads, max_logprobs=max_logprobs,
        )  # fmt: skip
        self._built, self._lock = build_engine(config), threading.Lock()
        path = self._built.model.path
        self._tokenizer = load_tokenizer(path if tokenizer is None else Path(tokenizer))
        self._chat_template = load_chat_template(path, chat_template, self._tokenizer)
        self._default_params = default_sampling_params(
            generation_config, override_generation_config, self._built.model.generation.sampling
        )
        self._seeds, self._num_requests = SeedSource(seed), 0

    def generate(
        self,
        prompts: Prompts,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., Any] = True,
        lora_request: None = None,
        priority: int | Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Complete prompts: text, token ids, a dict with `prompt` or `prompt_token_ids`, or a list of these.

        One result for each prompt, in order. If one prompt or its parameters cannot run, its UserError is raised,
        naming the prompt by its index, before any of them runs. A request that fails while it runs carries its `error`.
        A completion that would exceed the context ends there ("length").
        """
        _refuse_lora(lora_request)
        singles, is_list = split_prompts(prompts)
        parsed: list[ParsedPrompt] = []
        for index, prompt in enumerate(singles):
            with naming_prompt(index if is_list else None):
                parsed.append(parse_prompt(prompt, self._tokenizer))
        return self._run(parsed, sampling_params, use_tqdm, priority)

    def beam_search(
        self,
        prompts: Prompts,
        params: BeamSearchParams,
        lora_request: None = None,
    ) -> list[BeamSearchOutput]:
        """The most likely answers to each prompt, as far as a search along `beam_width` beams finds them.

        One result for each prompt, in order. Raises the UserError of the first prompt that cannot run; then none runs.
        """
        _refuse_lora(lora_request)
        singles, is_list = split_prompts(prompts)
        parsed: list[ParsedPrompt] = []
        for index, prompt in enumerate(singles):
            with naming_prompt(index if is_list else None):
                parsed.append(parse_prompt(prompt, self._tokenizer))
        ready, ends = self._built.ready, self._built.model.generation.end_token_ids
        searches = [
            BeamSearch(
                params, ends, min(params.max_tokens, ready.max_model_len - len(prompt.token_ids))
            )
            for prompt in parsed
        ]
        with self._lock:
            if self._ended is not None:
                raise EngineDeadError(self._ended)
            BeamBatch(self._built.engine, ready.vocab_size).run(parsed, searches)
        return [
            beam_search_output(prompt, search, self._tokenizer)
            for prompt, search in zip(parsed, searches, strict=True)
        ]

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., Any] = True,
        lora_request: None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answer a conversation, or a list of conversations; else as `generate`.

        Raises TemplateError if the model has no chat template or the template refuses the messages.
        """
        _refuse_lora(lora_request)
        template = self._template(chat_template)
        is_list = not messages or not isinstance(messages[0], Mapping)
        conversations: Sequence[Any] = messages if is_list else [messages]
        parsed: list[ParsedPrompt] = []
        for index, conversation in enumerate(conversations):
            with naming_prompt(index if is_list else None):
                text = template.render(
                    conversation,
                    add_generation_prompt=add_generation_prompt,
                    continue_final_message=continue_final_message,
                    tools=tools,
                    kwargs=chat_template_kwargs,
                )
                token_ids = self._tokenizer.encode(text, add_special_tokens=False)
                prompt = parse_prompt(token_ids, self._tokenizer)
                parsed.append(ParsedPrompt(text, prompt.token_ids))
        return self._run(parsed, sampling_params, use_tqdm, None)

    def reset_prefix_cache(self) -> bool:
        """Forget the beginnings of all prompts and answers so far. Returns whether nothing is left."""
        with self._lock:
            return self._built.engine.reset_prefix_cache()

    def get_tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        return self._tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What requests without parameters use: the model authors' recommendation."""
        return self._default_params

    def get_metrics(self) -> list[Metric]:
        """The engine's numbers, under the names of the `/metrics` endpoint."""
        return [
            Metric(f"{name}_total" if metric.is_counter else name, float(metric.value))
            for metric in engine_metrics(self.kv_stats())
            for name in metric.names
        ]

    def kv_stats(self) -> EngineStats:
        """Totals since the start, and how the block pool is used now."""
        return self._built.engine.stats

    @property
    def engine_info(self) -> Ready:
        """What the engine is: its limits, number formats, instruction set and memory ledger."""
        return self._built.ready

    def shutdown(self) -> None:
        """Give back threads and memory. Safe to call twice; later requests raise EngineDeadError."""
        with self._lock:
            self._ended = self._ended or "the LLM has been shut down"
            self._built.engine.close()

    close = shutdown

    def __enter__(self) -> "LLM":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    def _template(self, override: str | None) -> ChatTemplate:
        template = self._chat_template
        if override is not None:
            template = load_chat_template(self._built.model.path, override, self._tokenizer)
        if template is None:
            raise TemplateError(
                "this model has no chat template; give one with chat_template, or use generate",
                parameter="chat_template",
            )
        return template

    def _run(
        self,
        prompts: Sequence[ParsedPrompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
        use_tqdm: bool | Callable[..., Any],
        priority: int | Sequence[int] | None,
    ) -> list[RequestOutput]:
        if params is None:
            params = self._default_params
        all_params = one_for_each("sampling_params", params, len(prompts))
        priorities = one_for_each("priority", 0 if priority is None else priority, len(prompts))
        with self._lock:
            if self._ended is not None:
                raise EngineDeadError(self._ended)
            requests = [
                self._request(*parts) for parts in zip(prompts, all_params, priorities, strict=True)
            ]
            try:
                return Batch(self._built.engine, self._tokenizer).run(requests, use_tqdm)
            except EngineDeadError as error:
                self._ended = str(error)
                raise

    def _request(self, prompt: ParsedPrompt, params: SamplingParams, priority: int) -> BatchRequest:
        request_id = str(self._num_requests)
        self._num_requests += 1
        return BatchRequest(
            request_id,
            prompt,
            with_bad_words(params, self._tokenizer),
            self._seeds.next(params.seed),
            priority,
        )


def _model_config(
    model: str | Path,
    tokenizer: str | None,
    revision: str | None,
    dtype: str,
    max_model_len: int | None,
    quantization: str | None,
) -> ModelConfig:
    """vLLM's "gguf" is what the file has: nothing to do."""
    made = None if quantization == "gguf" else quantization
    return ModelConfig(str(model), tokenizer, revision, dtype, max_model_len, made)


def _scheduler_config(
    max_num_batched_tokens: int, max_num_seqs: int | None, policy: str
) -> SchedulerConfig:
    if max_num_seqs is None:
        max_num_seqs = min(SchedulerConfig().max_num_seqs, max_num_batched_tokens)
    return SchedulerConfig(
        max_num_batched_tokens,
        max_num_seqs,
        choice_of(SchedulingPolicy, "scheduling_policy", policy),
        NO_QUEUE_LIMIT,
    )


def _speculation_config(options: Mapping[str, Any] | None) -> SpeculationConfig | None:
    return None if options is None else SpeculationConfig.of_vllm(options)


def _refuse_lora(lora_request: object) -> None:
    if lora_request is not None:
        raise UnsupportedParameterError("lora_request is not supported", parameter="lora_request")
