"""The CPU runner: a step is one call into C++, with the interpreter lock released."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from octavo import _C
from octavo.backends.native.plan import build_plan
from octavo.backends.native.step_arrays import StepAnswers, StepArrays
from octavo.core.step import BlockId, StepPlan, StepResult
from octavo.models.spec import DecoderSpec
from octavo.models.weights import ModelWeights

_KV_FORMATS = {
    "float32": _C.KvFormat.F32,
    "bfloat16": _C.KvFormat.BF16,
    "int8": _C.KvFormat.INT8,
    "fp8": _C.KvFormat.FP8,
}


class NativeRunner:
    """Implements `core.step.Runner` and `PageMemory` with packed weights and its own threads."""

    def __init__(
        self,
        spec: DecoderSpec,
        weights: ModelWeights,
        *,
        num_blocks: int,
        block_size: int,
        dtype: str = "auto",
        kv_cache_dtype: str = "bfloat16",
        max_num_batched_tokens: int = 2048,
        num_threads: int = 1,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Pack the weights (seconds for large models) and make room for `num_blocks` blocks.

        dtype: auto, float32, bfloat16, int8 or int4 (of float weights); kv_cache_dtype: float32, bfloat16,
        int8 or fp8. `progress` is told the fraction that is packed. Raises MemoryError if the pool or the weights do not fit.
        """
        self._vocab_size = spec.vocab_size
        self._num_blocks = num_blocks
        self._block_size = block_size
        self._plan: _C.Plan | None = build_plan(
            spec,
            weights,
            _shape(spec, num_blocks, block_size, kv_cache_dtype, max_num_batched_tokens),
            dtype=dtype,
            num_threads=num_threads,
            progress=progress,
        )

    @property
    def num_blocks(self) -> int:
        """N: blocks in the pool."""
        return self._num_blocks

    @property
    def block_size(self) -> int:
        """B: tokens in a block."""
        return self._block_size

    @property
    def weight_bytes(self) -> int:
        """Bytes of the packed weights."""
        return self._native.weight_bytes

    @property
    def pool_bytes(self) -> int:
        """Bytes of the block pool."""
        return self._native.pool_bytes

    @property
    def scratch_bytes(self) -> int:
        """Bytes of activations, logits and per-thread memory."""
        return self._native.scratch_bytes

    def run(self, plan: StepPlan) -> StepResult:
        """Do the copies, compute the tokens, draw the samples."""
        arrays = StepArrays(self._vocab_size)
        arrays.add_tokens(plan)
        arrays.add_draws(plan)
        answers = self._compute(arrays, None)
        return answers.result(plan, arrays)

    def forward(self, plan: StepPlan) -> NDArray[np.float32]:
        """As `run`, but draws nothing and returns the logits of every token, float32 [T, V]."""
        arrays = StepArrays(self._vocab_size)
        arrays.add_tokens(plan)
        arrays.add_all_rows()
        logits = np.empty((len(arrays.tokens), self._vocab_size), dtype=np.float32)
        self._compute(arrays, logits)
        return logits

    @property
    def page_bytes(self) -> int:
        """Bytes of one block: keys and values of all layers."""
        return self._native.page_bytes

    def read_page(self, block: BlockId) -> memoryview:
        """A copy of a block, all layers in one piece."""
        page = np.empty(self.page_bytes, np.uint8)
        self._native.read_page(block, page)
        return page.data

    def write_page(self, block: BlockId, page: memoryview) -> None:
        """Fill a block. May be called by another thread while `run` computes, for blocks that it does not use."""
        self._native.write_page(block, np.frombuffer(page, np.uint8))

    def grow_pool(self) -> bool:
        """Implements `core.step.GrowingPool`."""
        return self._native.grow_pool()

    def set_profiling(self, on: bool) -> None:
        """Start counting the time of each op anew, or stop."""
        self._native.set_profiling(on)

    def profile(self) -> dict[str, float]:
        """Seconds by op, waiting for all threads included, since profiling was last turned on."""
        return self._native.profile()

    def close(self) -> None:
        """Give back threads and memory. Safe to call twice."""
        self._plan = None

    @property
    def _native(self) -> _C.Plan:
        if self._plan is None:
            raise RuntimeError("the runner is closed")
        return self._plan

    def _compute(self, arrays: StepArrays, logits: NDArray[np.float32] | None) -> StepAnswers:
        answers = StepAnswers.for_step(arrays)
        self._native.run(
            *arrays.words(),
            answers.tokens,
            answers.logprobs,
            answers.top_ids,
            answers.top_logprobs,
            logits,
        )
        return answers


def _shape(
    spec: DecoderSpec, num_blocks: int, block_size: int, kv_cache_dtype: str, max_tokens: int
) -> _C.ModelShape:
    shape = _C.ModelShape()
    shape.hidden_size = spec.hidden_size
    shape.num_heads = spec.num_heads
    shape.num_kv_heads = spec.num_kv_heads
    shape.head_dim = spec.head_dim
    shape.intermediate_size = spec.intermediate_size
    shape.vocab_size = spec.vocab_size
    shape.num_layers = spec.num_layers
    shape.norm_eps = spec.norm_eps
    shape.attention_scale = spec.attention_scale
    shape.max_tokens = max_tokens
    shape.num_blocks = num_blocks
    shape.block_size = block_size
    shape.kv_format = _KV_FORMATS[kv_cache_dtype]
    return shape
