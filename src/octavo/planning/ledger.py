"""What fits into memory, for every format of weights and cache: the arithmetic of a server's start, without one."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from octavo.config import QUANTIZATIONS, EngineConfig
from octavo.engine.build import SizedModel, facts_of
from octavo.errors import MemoryShortageError
from octavo.machine import Machine
from octavo.remedies import remedies
from octavo.resolve import MemoryPlan, ResolvedConfig, resolve, resolve_dtypes, untold


@dataclass(frozen=True, slots=True)
class Held:
    """How much of the cache a request holds while it runs."""

    mean_tokens: float
    """Averaged over requests that run at the same moment: long answers are there for longer."""
    name: str = ""

    @classmethod
    def by(cls, lengths: list[tuple[int, int]], name: str = "") -> "Held":
        """From pairs of prompt and answer lengths: an answer of O tokens runs for O steps, with P + O / 2 on average."""
        steps = sum(output for _, output in lengths)
        total = sum(output * (prompt + output / 2) for prompt, output in lengths)
        return cls(total / steps, name)

    def blocks(self, block_size: int) -> float:
        """Blocks of a request on average; the last is half full."""
        return self.mean_tokens / block_size + 0.5


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One choice of formats, and what it leaves. Bytes and tokens."""

    dtype: str
    kv_cache_dtype: str
    weights: int
    scratch: int
    block_bytes: int
    block_size: int
    token_bytes: int
    shortage: str | None
    """Why it does not fit."""
    resolved: ResolvedConfig | None
    """None if it does not fit."""

    @property
    def memory(self) -> MemoryPlan | None:
        """The ledger as the server prints it."""
        return None if self.resolved is None else self.resolved.memory

    @property
    def num_tokens(self) -> int:
        """Tokens that the pages hold."""
        return 0 if self.resolved is None else self.resolved.num_blocks * self.block_size

    @property
    def num_full_sequences(self) -> int:
        """Sequences of the longest length that run at once."""
        if self.resolved is None:
            return 0
        blocks = -(-self.resolved.max_model_len // self.block_size)
        return min(self.resolved.num_blocks // blocks, self.resolved.max_num_seqs)

    def num_sequences(self, held: Held) -> int:
        """Sequences of these lengths that run at once, on average."""
        if self.resolved is None:
            return 0
        return min(
            int(self.resolved.num_blocks / held.blocks(self.block_size)), self.resolved.max_num_seqs
        )


@dataclass(frozen=True, slots=True)
class Ledger:
    """All rows, the one that the settings chose first."""

    rows: tuple[LedgerRow, ...]
    remedies: tuple[str, ...]
    """Commands with settings that fit, if the chosen ones do not."""

    @property
    def chosen(self) -> LedgerRow:
        """The row of the settings themselves."""
        return self.rows[0]


def make_ledger(config: EngineConfig, model: SizedModel, machine: Machine) -> Ledger:
    """What these settings come to on this machine, and what other formats would. Raises ConfigError."""
    chosen = _row(config, model, machine)
    others = [
        row
        for tried in _formats(config, model)
        if (row := _row(tried, model, machine)).dtype != chosen.dtype
        or row.kv_cache_dtype != chosen.kv_cache_dtype
    ]
    found: list[str] = []
    if chosen.shortage is not None:
        found = remedies(config, lambda tried: facts_of(model, tried), machine)
    return Ledger((chosen, *others), tuple(found))


def _formats(config: EngineConfig, model: SizedModel) -> Iterator[EngineConfig]:
    facts = facts_of(model, config)
    for dtype in facts.weight_bytes:
        quantization = dtype if dtype in QUANTIZATIONS else None
        if quantization is not None and facts.quantized_types:
            continue  # made from F32, F16 or BF16 only
        for kv_cache_dtype in facts.block_bytes:
            yield replace(
                config,
                model=replace(
                    config.model,
                    dtype="auto" if quantization else dtype,
                    quantization=quantization,
                ),
                cache=replace(config.cache, kv_cache_dtype=kv_cache_dtype),
            )


def _row(config: EngineConfig, model: SizedModel, machine: Machine) -> LedgerRow:
    facts = facts_of(model, config)
    shortage: str | None = None
    resolved: ResolvedConfig | None = None
    try:
        resolved = resolve(config, facts, machine, untold)
        dtype, kv_cache_dtype = resolved.dtype, resolved.kv_cache_dtype
    except MemoryShortageError as error:
        shortage = str(error)
        dtype, kv_cache_dtype = resolve_dtypes(config, facts, untold)
    block_size = config.cache.block_size
    block_bytes = facts.block_bytes[kv_cache_dtype]
    return LedgerRow(
        dtype=dtype,
        kv_cache_dtype=kv_cache_dtype,
        weights=facts.weight_bytes[dtype],
        scratch=facts.scratch_bytes(config.num_threads or machine.num_threads),
        block_bytes=block_bytes,
        block_size=block_size,
        token_bytes=block_bytes // block_size,
        shortage=shortage,
        resolved=resolved,
    )
