"""The decoder in plain numpy over a paged pool: the specification of every other backend."""

from collections.abc import Iterator

import numpy as np

from octavo.backends.reference.attention import paged_attention, write_pages
from octavo.backends.reference.batch import Batch, flatten
from octavo.backends.reference.layers import Array, activate, rms_norm, rotate
from octavo.backends.reference.sampler import Row, sample_token, token_logprobs
from octavo.core.step import BlockId, SampledToken, SeqStep, StepPlan, StepResult, TokenLogprobs
from octavo.models.spec import DecoderSpec, LayerSpec
from octavo.models.weights import ModelWeights

_ROWS_AT_ONCE = 64
"""Rows of logits held at a time: a vocabulary of 262,144 takes 1 MiB a row in float32."""


class ReferenceRunner:
    """Implements `core.step.Runner` and `PageMemory`. Weights are dequantized once, to `precision`, and kept.

    All arithmetic is in `precision`, float32 or float64; sampling always sees float32 logits.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        weights: ModelWeights,
        *,
        num_blocks: int,
        block_size: int,
        precision: type[np.float32] | type[np.float64] = np.float32,
    ) -> None:
        self._spec = spec
        self._weights: dict[str, Array] = {
            name: weight.to_float32().astype(precision, copy=False)
            for name, weight in weights.items()
        }
        # For each layer the keys and the values of all slots, [L, N, B, K, D].
        shape = (spec.num_layers, num_blocks, block_size, spec.num_kv_heads, spec.head_dim)
        self._keys: Array = np.zeros(shape, precision)
        self._values: Array = np.zeros(shape, precision)
        self._num_blocks, self._block_size = num_blocks, block_size

    @property
    def num_blocks(self) -> int:
        """N: blocks in the pool."""
        return self._num_blocks

    @property
    def block_size(self) -> int:
        """B: tokens in a block."""
        return self._block_size

    def run(self, plan: StepPlan) -> StepResult:
        """Do the copies, compute the tokens, draw the samples."""
        hidden = self._hidden_states(plan)
        prompt_logprobs: dict[int, list[TokenLogprobs]] = {}
        drawn_rows: list[int] = []
        end = 0
        for seq in plan.seqs:
            first, end = end, end + len(seq.token_ids)
            if seq.num_prompt_logprobs is not None:
                prompt_logprobs[seq.seq_id] = self._prompt_logprobs(seq, hidden[first:end])
            drawn_rows += [first + offset for offset in seq.draw_offsets]
        rows = self._rows_of_logits(hidden[drawn_rows])
        tokens: list[SampledToken] = []
        for seq in plan.seqs:
            samples = iter(seq.samples)
            for _ in seq.draw_offsets:
                row = next(rows)
                tokens += [sample_token(row, next(samples)) for _ in seq.sampling]
        return StepResult.of(tokens, prompt_logprobs)

    def forward(self, plan: StepPlan) -> Array:
        """Do the copies and compute the tokens; the logits of all of them, [T, V], in `precision`."""
        return self._logits(self._hidden_states(plan))

    @property
    def page_bytes(self) -> int:
        """Bytes of one block: keys and values of all layers."""
        return 2 * self._keys[:, 0].nbytes

    def read_page(self, block: BlockId) -> memoryview:
        """A copy of a block, all layers in one piece: keys, then values."""
        return memoryview(self._keys[:, block].tobytes() + self._values[:, block].tobytes())

    def write_page(self, block: BlockId, page: memoryview) -> None:
        """Fill a block with what was read from one."""
        pair = np.frombuffer(page, self._keys.dtype).reshape(2, *self._keys[:, block].shape)
        self._keys[:, block], self._values[:, block] = pair

    def close(self) -> None:
        """Let go of weights and pages."""
        self._weights = {}
        self._keys = self._values = np.empty(0)

    def _prompt_logprobs(self, seq: SeqStep, hidden: Array) -> list[TokenLogprobs]:
        num_top = seq.num_prompt_logprobs or 0
        rows = self._rows_of_logits(hidden[: len(seq.prompt_targets)])
        return [
            token_logprobs(row, target, num_top)
            for row, target in zip(rows, seq.prompt_targets, strict=True)
        ]

    def _rows_of_logits(self, hidden: Array) -> Iterator[Row]:
        """The logits of each row, float32 [V], a few computed at a time."""
        for first in range(0, len(hidden), _ROWS_AT_ONCE):
            yield from self._logits(hidden[first : first + _ROWS_AT_ONCE]).astype(np.float32)

    def _logits(self, hidden: Array) -> Array:
        """[T, E] -> [T, V]"""
        head = self._weights["embed" if self._spec.tied_head else "head"]
        normed = rms_norm(hidden, self._weights["final_norm"], self._spec.norm_eps)
        logits: Array = normed @ head.T
        return logits

    def _hidden_states(self, plan: StepPlan) -> Array:
        """The residual stream after the last layer, [T, E], of all tokens of the plan in order."""
        for copy in plan.copies:
            self._keys[:, copy.dst] = self._keys[:, copy.src]
            self._values[:, copy.dst] = self._values[:, copy.src]
        batch = flatten(plan, self._num_blocks, self._block_size)
        ids = batch.token_ids
        if ((ids < 0) | (ids >= self._spec.vocab_size)).any():
            raise ValueError(f"a token id is not from 0 to {self._spec.vocab_size - 1}")
        x: Array = self._weights["embed"][ids] * self._keys.dtype.type(
            self._spec.embedding_multiplier
        )
        for i, layer in enumerate(self._spec.layers):
            x = x + self._attention(i, layer, x, batch)
            x = x + self._feed_forward(i, x)
        return x

    def _attention(self, i: int, layer: LayerSpec, x: Array, batch: Batch) -> Array:
        spec = self._spec
        normed = self._norm(x, f"layers.{i}.attn_norm")
        q = self._linear(normed, f"layers.{i}.q").reshape(-1, spec.num_heads, spec.head_dim)
        k = self._linear(normed, f"layers.{i}.k").reshape(-1, spec.num_kv_heads, spec.head_dim)
        v = self._linear(normed, f"layers.{i}.v").reshape(-1, spec.num_kv_heads, spec.head_dim)
        if spec.qk_norm:
            q, k = self._norm(q, f"layers.{i}.q_norm"), self._norm(k, f"layers.{i}.k_norm")
        rope = spec.ropes[layer.rope]
        q, k = rotate(q, batch.positions, rope), rotate(k, batch.positions, rope)
        # All new keys and values are in the pages before any token attends: a token sees itself there.
        write_pages(self._keys[i], k, batch.slots)
        write_pages(self._values[i], v, batch.slots)
        outputs = np.empty_like(q)
        for part in batch.sequences:
            outputs[part.rows] = paged_attention(
                q[part.rows],
                self._keys[i],
                self._values[i],
                part.block_table,
                part.start,
                scale=spec.attention_scale,
                window=layer.window,
            )
        joined = outputs.reshape(len(x), spec.num_heads * spec.head_dim)
        result = self._linear(joined, f"layers.{i}.o")
        return self._norm(result, f"layers.{i}.post_attn_norm") if spec.post_norms else result

    def _feed_forward(self, i: int, x: Array) -> Array:
        normed = self._norm(x, f"layers.{i}.ffn_norm")
        gate = activate(self._linear(normed, f"layers.{i}.gate"), self._spec.activation)
        result = self._linear(gate * self._linear(normed, f"layers.{i}.up"), f"layers.{i}.down")
        return self._norm(result, f"layers.{i}.post_ffn_norm") if self._spec.post_norms else result

    def _norm(self, x: Array, name: str) -> Array:
        return rms_norm(x, self._weights[name], self._spec.norm_eps)

    def _linear(self, x: Array, name: str) -> Array:
        """x times the weight, [.., in] -> [.., out], plus its bias if the model has one."""
        result: Array = x @ self._weights[name].T
        bias = self._weights.get(f"{name}_bias")
        return result if bias is None else result + bias
