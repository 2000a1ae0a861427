"""A `StepPlan` as the flat arrays that one native call reads, and its answers as a `StepResult`."""

import struct
from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from octavo.core.sampling_params import SamplingParams
from octavo.core.step import Sample, SampledToken, SeqStep, StepPlan, StepResult, TokenLogprobs

_DRAW = struct.Struct("<Qiiii6f12i")
"""csrc/plan/step.h: Draw."""
_ABSENT = (0, -1)
_EMPTY = (0, 0)
_ROW_WORDS = 6
_ERRORS = {
    1: "the logits are not finite (NaN or infinity)",
    2: "no token is left to draw: allowed_token_ids, bad_words and logit_bias exclude all",
}


def _pack_greedy() -> bytes:
    return _DRAW.pack(
        0, 0, 0, -1, 0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0,
        *_EMPTY, *_EMPTY, *_ABSENT, *_EMPTY, *_EMPTY, 0, 0,
    )  # fmt: skip


_GREEDY = _pack_greedy()
"""The draw of a request that only wants its most likely token; most are."""


def is_plain_greedy(sample: Sample) -> bool:
    """Whether the largest raw logit is the answer, so that no logits need to be kept."""
    p = sample.params
    return (
        p.temperature == 0.0
        and p.logprobs is None
        and p.repetition_penalty == 1.0
        and p.frequency_penalty == 0.0
        and p.presence_penalty == 0.0
        and not p.logit_bias
        and p.allowed_token_ids is None
        and not p.bad_words_token_ids
        and not sample.suppressed_token_ids
    )


@dataclass(slots=True)
class StepArrays:
    """The arrays of one step. All int32 but `bias_values`; layouts as in csrc/plan/step.h."""

    vocab_size: int
    tokens: "array[int]" = field(default_factory=lambda: array("i"))
    sequences: "array[int]" = field(default_factory=lambda: array("i"))
    tables: "array[int]" = field(default_factory=lambda: array("i"))
    copies: "array[int]" = field(default_factory=lambda: array("i"))
    rows: "array[int]" = field(default_factory=lambda: array("i"))
    draws: bytearray = field(default_factory=bytearray)
    ids: "array[int]" = field(default_factory=lambda: array("i"))
    bias_values: "array[float]" = field(default_factory=lambda: array("f"))
    num_top: int = 0
    """Alternatives that all logprobs of the step report together."""
    num_draws: int = 0

    @property
    def num_rows(self) -> int:
        """Rows whose logits are needed."""
        return len(self.rows) // _ROW_WORDS

    def add_tokens(self, plan: StepPlan) -> None:
        """Tokens, positions, tables and copies: all but what is drawn."""
        tokens, tables = self.tokens, self.tables
        for seq in plan.seqs:
            self.sequences.extend((len(tokens), len(seq.token_ids), seq.start, len(tables)))
            tokens.extend(seq.token_ids)
            tables.extend(seq.block_table)
        for copy in plan.copies:
            self.copies.extend((copy.src, copy.dst))

    def add_draws(self, plan: StepPlan) -> None:
        """The rows that are sampled from, and those whose prompt log-probabilities are wanted."""
        first_row = 0
        for seq in plan.seqs:
            if seq.num_prompt_logprobs is not None:
                self._add_targets(seq, first_row)
            first_row += len(seq.token_ids)
            if seq.samples:
                self.rows.extend((first_row - 1, self.num_draws, len(seq.samples), -1, 0, 0))
                for sample in seq.samples:
                    self._add_draw(sample)

    def add_all_rows(self) -> None:
        """Every token's logits, nothing drawn."""
        for row in range(len(self.tokens)):
            self.rows.extend((row, 0, 0, -1, 0, 0))

    def _add_targets(self, seq: SeqStep, first_row: int) -> None:
        num_top = self.count_top(seq.num_prompt_logprobs or 0)
        for i, target in enumerate(seq.prompt_targets):
            self.rows.extend((first_row + i, 0, 0, target, num_top, self.num_top))
            self.num_top += num_top

    def count_top(self, wanted: int) -> int:
        """Alternatives to report where `wanted` were asked for; -1 is the whole vocabulary."""
        return self.vocab_size if wanted == -1 else min(wanted, self.vocab_size)

    def _add_draw(self, sample: Sample) -> None:
        self.num_draws += 1
        if is_plain_greedy(sample):
            self.draws += _GREEDY
            return
        p = sample.params
        num_logprobs = -1 if p.logprobs is None else self.count_top(p.logprobs)
        first_top = self.num_top
        self.num_top += max(0, num_logprobs)
        bias = (len(self.ids), len(p.logit_bias))
        first_bias = len(self.bias_values)
        self.ids.extend(p.logit_bias)
        self.bias_values.extend(p.logit_bias.values())
        self.draws += _DRAW.pack(
            sample.seed & 0xFFFF_FFFF_FFFF_FFFF, sample.output_index,
            min(max(p.top_k, 0), self.vocab_size), num_logprobs, first_top,
            p.temperature, p.top_p, p.min_p,
            p.repetition_penalty, p.frequency_penalty, p.presence_penalty,
            *self._history(sample), *self._allowed(p), *self._add_ids(_banned(sample)), *bias,
            first_bias, 0,
        )  # fmt: skip

    def _history(self, sample: Sample) -> tuple[int, int, int, int]:
        """Ranges of prompt and output, where a penalty reads them."""
        p = sample.params
        if p.repetition_penalty == 1.0 and p.frequency_penalty == p.presence_penalty == 0.0:
            return (*_EMPTY, *_EMPTY)
        begin, count = self._add_ids(sample.token_ids)
        return (begin, sample.prompt_len, begin + sample.prompt_len, count - sample.prompt_len)

    def _allowed(self, p: SamplingParams) -> tuple[int, int]:
        return _ABSENT if p.allowed_token_ids is None else self._add_ids(p.allowed_token_ids)

    def _add_ids(self, ids: "array[int] | tuple[int, ...] | list[int]") -> tuple[int, int]:
        begin = len(self.ids)
        self.ids.extend(ids)
        return begin, len(ids)


def _banned(sample: Sample) -> list[int]:
    """Suppressed ids, and the last id of each bad word whose other ids are the sequence's last."""
    banned = list(sample.suppressed_token_ids)
    tokens = sample.token_ids
    for word in sample.params.bad_words_token_ids:
        before = len(word) - 1
        if before <= len(tokens) and tuple(tokens[len(tokens) - before :]) == word[:-1]:
            banned.append(word[-1])
    return banned


@dataclass(slots=True)
class StepAnswers:
    """The arrays that the native call fills."""

    tokens: NDArray[np.int32]
    """[draws] tokens, [draws] errors, [draws + rows] ranks."""
    logprobs: NDArray[np.float32]
    """[draws + rows]"""
    top_ids: NDArray[np.int32]
    top_logprobs: NDArray[np.float32]

    @classmethod
    def for_step(cls, arrays: StepArrays) -> "StepAnswers":
        """Room for the answers of a step."""
        draws, rows = arrays.num_draws, arrays.num_rows
        return cls(
            np.zeros(3 * draws + rows, dtype=np.int32),
            np.zeros(draws + rows, dtype=np.float32),
            np.zeros(arrays.num_top, dtype=np.int32),
            np.zeros(arrays.num_top, dtype=np.float32),
        )

    def result(self, plan: StepPlan, arrays: StepArrays) -> StepResult:
        """As the core understands it."""
        draws = arrays.num_draws
        tokens = self.tokens[: 2 * draws].tolist()
        sampled: list[SampledToken] = []
        prompt: dict[int, list[TokenLogprobs]] = {}
        row = top = 0
        for seq in plan.seqs:
            if seq.num_prompt_logprobs is not None:
                num_top = arrays.count_top(seq.num_prompt_logprobs)
                targets = prompt.setdefault(seq.seq_id, [])
                for target in seq.prompt_targets:
                    targets.append(self._logprobs(target, draws + row, top, num_top, draws))
                    row, top = row + 1, top + num_top
            row += bool(seq.samples)
            for sample in seq.samples:
                i = len(sampled)
                error = _ERRORS.get(tokens[draws + i])
                logprobs = None
                if sample.params.logprobs is not None:
                    num_top = arrays.count_top(sample.params.logprobs)
                    if error is None:
                        logprobs = self._logprobs(tokens[i], i, top, num_top, draws)
                    top += num_top
                sampled.append(SampledToken(sample.seq_id, tokens[i], logprobs, error))
        return StepResult(sampled, prompt)

    def _logprobs(
        self, token_id: int, slot: int, top: int, num_top: int, draws: int
    ) -> TokenLogprobs:
        ids = self.top_ids[top : top + num_top].tolist()
        values = self.top_logprobs[top : top + num_top].tolist()
        return TokenLogprobs(
            token_id,
            float(self.logprobs[slot]),
            int(self.tokens[2 * draws + slot]),
            tuple(zip(ids, values, strict=True)),
        )
