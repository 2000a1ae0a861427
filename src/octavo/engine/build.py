"""Where an engine is put together, in the only possible order: model, settings, runner, tables, scheduler."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from octavo.checkpoints.locate import locate
from octavo.config import QUANTIZATIONS, Backend, EngineConfig, ModelConfig
from octavo.core.block_tables import BlockTables
from octavo.core.governor import Governor
from octavo.core.scheduler import Scheduler
from octavo.core.step import PagedRunner, Runner
from octavo.engine.fingerprint import fingerprint, lasting_fingerprint
from octavo.engine.grammars import Grammars
from octavo.engine.loop import Engine
from octavo.engine.messages import LedgerLine, Ready
from octavo.engine.tiers import open_tiers
from octavo.errors import ConfigError
from octavo.machine import check_platform, inspect_machine
from octavo.models.footprint import (
    KV_NUMBERS,
    StoredWeight,
    block_bytes,
    quantized_types,
    scratch_bytes,
    weight_bytes,
)
from octavo.models.model import Model, load_model
from octavo.models.spec import DecoderSpec
from octavo.progress import Progress, silent
from octavo.remedies import resolve_or_advise
from octavo.resolve import ModelFacts, ResolvedConfig
from octavo.text.grammar import TokenGrammarCompiler

if TYPE_CHECKING:
    from octavo.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """An engine, and what its owner wants to know of it."""

    engine: Engine
    ready: Ready
    model: Model
    """Its weights are released: their names, types and shapes are left."""


def build_engine(
    config: EngineConfig,
    *,
    progress: Progress = silent,
    wrap_runner: Callable[[Runner], Runner] | None = None,
) -> BuiltEngine:
    """Find the model, load it and build an engine. `wrap_runner` may put another runner in its place.

    Raises PlatformError, ConfigError, CheckpointError, DownloadError.
    """
    check_platform()
    path = locate(config.model.model, revision=config.model.revision, progress=progress)
    model = load_model(path)
    resolved = resolve_or_advise(config, lambda tried: facts_of(model, tried), inspect_machine())
    try:
        memory = make_runner(model, resolved, progress)
    except MemoryError as error:
        needs = ", ".join(f"{name} {num_bytes:,}" for name, num_bytes in resolved.memory.lines)
        raise ConfigError(f"there is not enough memory; in bytes: {needs}") from error
    lasts = config.cache.kv_cache_dir is not None
    identity = (lasting_fingerprint if lasts else fingerprint)(
        model, resolved, instruction_set(resolved.backend)
    )
    model.weights.release()  # packed: the mapped file would count as this process's memory
    runner: Runner = memory if wrap_runner is None else wrap_runner(memory)
    tables = BlockTables(runner.num_blocks, runner.block_size, identity)
    tiers, runner = open_tiers(config.cache, identity, tables, runner, memory)
    scheduler = Scheduler(
        tables,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
        max_num_seqs=resolved.max_num_seqs,
        max_model_len=resolved.max_model_len,
        policy=resolved.policy,
        end_token_ids=model.generation.end_token_ids,
        prefix_caching=resolved.prefix_caching,
        speculation=resolved.speculation,
        governor=None if resolved.target_itl_s is None else Governor(resolved.target_itl_s),
        named_prefix_share=resolved.named_prefix_share,
        tiers=tiers,
    )
    engine = Engine(
        scheduler,
        runner,
        vocab_size=model.spec.vocab_size,
        max_logprobs=resolved.max_logprobs,
        max_num_queued_reqs=resolved.max_num_queued_reqs,
        max_num_queued_tokens=resolved.max_num_queued_tokens,
        grammars=Grammars(_grammar_compiler(model, config.model)),
    )
    return BuiltEngine(engine, _ready(model, resolved, runner), model)


def _grammar_compiler(model: Model, config: ModelConfig) -> TokenGrammarCompiler:
    """Compiles for the vocabulary of a model, whose tokenizer is only read when a request needs it."""

    def load() -> "Tokenizer":
        from octavo.text.tokenizer import load_tokenizer  # late: most engines never need one

        return load_tokenizer(Path(config.tokenizer) if config.tokenizer else model.path)

    return TokenGrammarCompiler(
        load, vocab_size=model.spec.vocab_size, end_token_ids=model.generation.end_token_ids
    )


class SizedModel(Protocol):
    """A `Model`, or one of which only the header is known."""

    @property
    def spec(self) -> DecoderSpec:
        """What it is."""
        ...

    @property
    def weights(self) -> Mapping[str, StoredWeight]:
        """Formats and shapes of its weights."""
        ...


def facts_of(model: SizedModel, config: EngineConfig) -> ModelFacts:
    """What the settings depend on of this model."""
    spec, scheduler = model.spec, config.scheduler
    return ModelFacts(
        max_position_embeddings=spec.max_position_embeddings,
        block_bytes={
            dtype: block_bytes(spec, config.cache.block_size, dtype) for dtype in KV_NUMBERS
        },
        weight_bytes={
            dtype: weight_bytes(model.weights, dtype)
            for dtype in ("auto", "float32", "bfloat16", *QUANTIZATIONS)
        },
        scratch_bytes=lambda num_threads: scratch_bytes(
            spec, scheduler.max_num_batched_tokens, num_threads
        ),
        quantized_types=quantized_types(model.weights),
    )


def make_runner(model: Model, resolved: ResolvedConfig, progress: Progress = silent) -> PagedRunner:
    """The runner of the chosen backend, its weights packed. Raises ConfigError, MemoryError."""
    instruction_set(resolved.backend)
    # Only the chosen backend is imported: the other's extension module may not even load here.
    if resolved.backend is Backend.REFERENCE:
        from octavo.backends.reference.runner import ReferenceRunner

        return ReferenceRunner(
            model.spec,
            model.weights,
            num_blocks=resolved.num_blocks,
            block_size=resolved.block_size,
        )
    from octavo.backends.native.runner import NativeRunner

    return NativeRunner(
        model.spec,
        model.weights,
        num_blocks=resolved.num_blocks,
        block_size=resolved.block_size,
        dtype=resolved.dtype,
        kv_cache_dtype=resolved.kv_cache_dtype,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
        num_threads=resolved.num_threads,
        progress=lambda done: progress("packing weights", done),
    )


def instruction_set(backend: Backend) -> str:
    """What the kernels are written for, on this processor. Raises ConfigError for an OCTAVO_ISA that it lacks."""
    if backend is Backend.REFERENCE:
        return "numpy"
    from octavo import _C  # here, as the runners

    try:
        return _C.isa()
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _ready(model: Model, resolved: ResolvedConfig, runner: Runner) -> Ready:
    return Ready(
        model=model.name,
        architecture=model.spec.architecture,
        vocab_size=model.spec.vocab_size,
        max_model_len=resolved.max_model_len,
        num_blocks=runner.num_blocks,
        block_size=runner.block_size,
        max_num_seqs=resolved.max_num_seqs,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
        max_logprobs=resolved.max_logprobs,
        dtype=resolved.dtype,
        kv_cache_dtype=resolved.kv_cache_dtype,
        speculation="off" if resolved.speculation is None else "ngram",
        isa=instruction_set(resolved.backend),
        num_threads=resolved.num_threads,
        prefix_caching=resolved.prefix_caching,
        block_bytes=resolved.memory.pool // resolved.num_blocks,
        ledger=[LedgerLine(name, num_bytes) for name, num_bytes in resolved.memory.lines],
        hidden_size=model.spec.hidden_size,
    )
