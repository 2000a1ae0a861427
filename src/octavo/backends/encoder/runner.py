"""Encoders in numpy. A text is computed by itself and whole, so its vector does not depend on what else is asked."""

from array import array

import numpy as np

from octavo.backends.encoder.layers import attend, gelu, layer_norm
from octavo.core.step import SampledToken, SeqStep, StepPlan, StepResult
from octavo.models.encoder import Encoder, EncoderPooling, Floats


class EncoderRunner:
    """Implements `core.step.Runner` for an encoder, which keeps no keys and values: its blocks are only counted.

    Nothing is computed before the last chunk of a prompt. Then the whole prompt is, and its vector is what the step
    gives as the sum of one hidden state. The token that is drawn means nothing.
    """

    def __init__(self, encoder: Encoder, *, num_blocks: int, block_size: int) -> None:
        self._spec = encoder.spec
        self._weights = dict(encoder.weights)
        self._num_blocks, self._block_size = num_blocks, block_size

    @property
    def num_blocks(self) -> int:
        """N: blocks that are counted."""
        return self._num_blocks

    @property
    def block_size(self) -> int:
        """B: tokens in a block."""
        return self._block_size

    def run(self, plan: StepPlan) -> StepResult:
        """The vectors of the prompts that end in this step."""
        pooled = {
            seq.seq_id: array("d", self.embed(_prompt(seq)).astype(np.float64))
            for seq in plan.seqs
            if seq.num_pooled
        }
        drawn = [SampledToken(0) for seq in plan.seqs for _ in range(seq.num_draws)]
        return StepResult.of(drawn, pooled=pooled)

    def embed(self, token_ids: "array[int]") -> Floats:
        """The vector of a text, float32 [E], not normalized."""
        states = self.states(token_ids)
        vector: Floats = states[0]
        if self._spec.pooling is EncoderPooling.MEAN:
            vector = states.mean(axis=0, dtype=np.float64).astype(np.float32)
        return vector

    def states(self, token_ids: "array[int]") -> Floats:
        """The last hidden states, float32 [T, E]."""
        w = self._weights
        ids = np.asarray(token_ids, dtype=np.int64)
        x: Floats = (
            w["word_embeddings"][ids]
            + w["token_type_embeddings"][0]
            + w["position_embeddings"][: len(ids)]
        )
        x = self._norm(x, "norm")
        for i in range(self._spec.num_layers):
            name = f"layers.{i}."
            q, k, v = (self._linear(x, name + part) for part in "qkv")
            attention = self._linear(attend(q, k, v, self._spec.num_heads), name + "o")
            x = self._norm(x + attention, name + "attn_norm")
            inner = gelu(self._linear(x, name + "up"))
            x = self._norm(x + self._linear(inner, name + "down"), name + "ffn_norm")
        return x

    def close(self) -> None:
        """Let go of the weights."""
        self._weights = {}

    def _linear(self, x: Floats, name: str) -> Floats:
        result: Floats = x @ self._weights[name].T + self._weights[f"{name}_bias"]
        return result

    def _norm(self, x: Floats, name: str) -> Floats:
        return layer_norm(
            x, self._weights[name], self._weights[f"{name}_bias"], self._spec.norm_eps
        )


def _prompt(seq: SeqStep) -> "array[int]":
    """All tokens of a sequence up to the end of a step."""
    return seq.history[: seq.start] + seq.token_ids
