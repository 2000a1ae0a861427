"""A `StepPlan` as the flat arrays that one native call reads, and its answers as a `StepResult`."""

import struct
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from octavo.core.sampling_params import SamplingParams
from octavo.core.step import Sampling, SeqStep, StepPlan, StepResult, TokenLogprobs

_DRAW = struct.Struct("<Qiiii6f12i")
"""csrc/plan/step.h: Draw."""
_ABSENT = (0, -1)
_NO_MASK = -1
_EMPTY = (0, 0)
_ROW_WORDS = 6
_SEQUENCE_WORDS = 4
Ints: TypeAlias = NDArray[np.int32]
_ERRORS = {
    1: "the logits are not finite (NaN or infinity)",
    2: "no token is left to draw: allowed_token_ids, bad_words, min_tokens and the grammar exclude all",
}


def _pack_greedy() -> bytes:
    return _DRAW.pack(
        0, 0, 0, -1, 0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0,
        *_EMPTY, *_EMPTY, *_ABSENT, *_EMPTY, *_EMPTY, 0, _NO_MASK,
    )  # fmt: skip


_GREEDY = _pack_greedy()
"""The draw of a request that only wants its most likely token; most are."""


def _no_ints() -> Ints:
    return np.empty(0, np.int32)


@dataclass(slots=True)
class _Ids:
    """Where the ids that a request's draws share lie in `StepArrays.ids`: (begin, count)."""

    allowed: tuple[int, int]
    biased: tuple[int, int]
    first_bias: int


@dataclass(slots=True)
class StepArrays:
    """The arrays of one step. All int32 but `bias_values`; layouts as in csrc/plan/step.h."""

    vocab_size: int
    tokens: Ints = field(default_factory=_no_ints)
    sequences: Ints = field(default_factory=_no_ints)
    tables: Ints = field(default_factory=_no_ints)
    copies: Ints = field(default_factory=_no_ints)
    rows: "array[int]" = field(default_factory=lambda: array("i"))
    draws: bytearray = field(default_factory=bytearray)
    ids: "array[int]" = field(default_factory=lambda: array("i"))
    bias_values: "array[float]" = field(default_factory=lambda: array("f"))
    masks: list[bytes] = field(default_factory=list)
    """As in `StepPlan`, for the draws that have one."""
    num_top: int = 0
    """Alternatives that all logprobs of the step report together."""
    num_draws: int = 0
    hidden_rows: "array[int]" = field(default_factory=lambda: array("i"))
    """Rows whose last hidden states are wanted."""
    has_logprobs: bool = False
    """Whether any are to be reported."""
    _shared: dict[int, _Ids] = field(default_factory=dict)
    """By the identity of a request's parameters, which the plan keeps alive."""

    @property
    def num_rows(self) -> int:
        """Rows whose logits are needed."""
        return len(self.rows) // _ROW_WORDS

    def add_tokens(self, plan: StepPlan) -> None:
        """Tokens, positions, tables and copies: all but what is drawn."""
        seqs = plan.seqs
        if seqs:
            token_ids = [seq.token_ids for seq in seqs]
            tables = [seq.block_table for seq in seqs]
            self.tokens, self.tables = _joined(token_ids), _joined(tables)
            sequences = np.empty((len(seqs), _SEQUENCE_WORDS), np.int32)
            sequences[:, 0] = _offsets(token_ids)
            sequences[:, 1] = [*map(len, token_ids)]
            sequences[:, 2] = [seq.start for seq in seqs]
            sequences[:, 3] = _offsets(tables)
            self.sequences = sequences.reshape(-1)
        if plan.copies:
            copies = [(copy.src, copy.dst) for copy in plan.copies]
            self.copies = np.array(copies, np.int32).reshape(-1)

    def add_draws(self, plan: StepPlan) -> None:
        """The rows that are sampled from, and those whose prompt log-probabilities are wanted."""
        row = 0
        extend_rows = self.rows.extend
        for seq in plan.seqs:
            if seq.num_prompt_logprobs is not None:
                self._add_targets(seq, row)
            row += len(seq.token_ids)
            if seq.num_pooled:
                self.hidden_rows.extend(range(row - seq.num_pooled, row))
            sampling = seq.sampling
            if not sampling:
                continue
            num_draws = len(sampling)
            if seq.num_drafts == 0:
                extend_rows((row - 1, self.num_draws, num_draws, -1, 0, 0))
            else:
                num_draws *= seq.num_drafts + 1
                self._add_guessed_rows(seq, row)
            self.num_draws += num_draws
            if sampling[0].is_plain:
                self.draws += _GREEDY if num_draws == 1 else _GREEDY * num_draws
            else:
                self._add_draws(seq, self.num_draws - num_draws, plan.masks)

    def words(self) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, NDArray[np.float32], Ints]:
        """All arrays, as the native call takes them, without a copy."""
        return (
            self.tokens,
            self.sequences,
            self.tables,
            self.copies,
            _words(self.rows),
            _words(self.draws),
            _words(self.ids),
            np.array(self.bias_values, dtype=np.float32),
            _words(b"".join(self.masks)),
        )

    def add_all_rows(self) -> None:
        """Every token's logits, nothing drawn."""
        for row in range(len(self.tokens)):
            self.rows.extend((row, 0, 0, -1, 0, 0))

    def count_top(self, wanted: int) -> int:
        """Alternatives to report where `wanted` were asked for; -1 is the whole vocabulary."""
        return self.vocab_size if wanted == -1 else min(wanted, self.vocab_size)

    def _add_targets(self, seq: SeqStep, first_row: int) -> None:
        num_top = self.count_top(seq.num_prompt_logprobs or 0)
        self.has_logprobs = True
        for i, target in enumerate(seq.prompt_targets):
            self.rows.extend((first_row + i, 0, 0, target, num_top, self.num_top))
            self.num_top += num_top

    def _add_guessed_rows(self, seq: SeqStep, end_row: int) -> None:
        """The rows of the last known token and of the guesses after it."""
        for draw, row in enumerate(range(end_row - 1 - seq.num_drafts, end_row), self.num_draws):
            self.rows.extend((row, draw, 1, -1, 0, 0))

    def _add_draws(self, seq: SeqStep, draw: int, masks: Mapping[int, bytes]) -> None:
        params = seq.sampling[0].params
        history = seq.history[: seq.start] + seq.token_ids
        begin = self._add_ids(history)[0] if params.has_penalties else None
        for offset in seq.draw_offsets:
            known = seq.start + offset + 1
            words = _banned_by_words(params, history, known)
            for sampling in seq.sampling:
                prompt_len = sampling.prompt_len
                outputs = (*_EMPTY, *_EMPTY)
                if begin is not None:
                    outputs = (begin, prompt_len, begin + prompt_len, known - prompt_len)
                banned = (*sampling.suppressed_at(known - prompt_len), *words)
                mask = masks.get(draw)
                self._add_draw(sampling, known - prompt_len, outputs, banned, mask)
                draw += 1

    def _add_draw(
        self,
        sampling: Sampling,
        output_index: int,
        history: tuple[int, int, int, int],
        banned: Iterable[int],
        mask: bytes | None,
    ) -> None:
        p = sampling.params
        num_logprobs = -1 if p.logprobs is None else self.count_top(p.logprobs)
        first_top = self.num_top
        self.num_top += max(0, num_logprobs)
        self.has_logprobs |= num_logprobs >= 0
        ids = self._shared.get(id(p)) or self._share_ids(p)
        number = _NO_MASK
        if mask is not None:
            number = len(self.masks)
            self.masks.append(mask)
        self.draws += _DRAW.pack(
            sampling.seed & 0xFFFF_FFFF_FFFF_FFFF, output_index,
            min(max(p.top_k, 0), self.vocab_size), num_logprobs, first_top,
            p.temperature, p.top_p, p.min_p,
            p.repetition_penalty, p.frequency_penalty, p.presence_penalty,
            *history, *ids.allowed, *self._add_ids(banned), *ids.biased, ids.first_bias, number,
        )  # fmt: skip

    def _share_ids(self, p: SamplingParams) -> _Ids:
        """Write down once what all draws of a request read."""
        allowed = _ABSENT if p.allowed_token_ids is None else self._add_ids(p.allowed_token_ids)
        ids = _Ids(allowed, self._add_ids(p.logit_bias), len(self.bias_values))
        self.bias_values.extend(p.logit_bias.values())
        self._shared[id(p)] = ids
        return ids

    def _add_ids(self, ids: Iterable[int]) -> tuple[int, int]:
        begin = len(self.ids)
        self.ids.extend(ids)
        return begin, len(self.ids) - begin


def _banned_by_words(params: SamplingParams, history: "array[int]", known: int) -> list[int]:
    """The last id of each bad word whose other ids are the last of the `known` tokens of a history."""
    banned: list[int] = []
    for word in params.bad_words_token_ids:
        before = len(word) - 1
        if before <= known and tuple(history[known - before : known]) == word[:-1]:
            banned.append(word[-1])
    return banned


def _words(buffer: "array[int] | bytearray | bytes") -> Ints:
    """int32 words of a buffer; numpy refuses empty ones."""
    return np.frombuffer(buffer, dtype=np.int32) if buffer else _no_ints()


def _joined(arrays: "list[array[int]]") -> Ints:
    """All of them in a row."""
    return np.frombuffer(b"".join(arrays), np.int32)


def _offsets(arrays: "list[array[int]]") -> list[int]:
    """Where each begins in `_joined`."""
    ends = [*accumulate(map(len, arrays), initial=0)]
    del ends[-1]
    return ends


@dataclass(slots=True)
class StepAnswers:
    """The arrays that the native call fills."""

    tokens: NDArray[np.int32]
    """[draws] tokens, [draws] errors, [draws + rows] ranks."""
    logprobs: NDArray[np.float32]
    """[draws + rows]"""
    top_ids: NDArray[np.int32]
    top_logprobs: NDArray[np.float32]
    hidden: NDArray[np.float32]
    """[hidden rows, E]"""

    @classmethod
    def for_step(cls, arrays: StepArrays, hidden_size: int) -> "StepAnswers":
        """Room for the answers of a step."""
        draws, rows = arrays.num_draws, arrays.num_rows
        return cls(
            np.zeros(3 * draws + rows, dtype=np.int32),
            np.zeros(draws + rows, dtype=np.float32),
            np.zeros(arrays.num_top, dtype=np.int32),
            np.zeros(arrays.num_top, dtype=np.float32),
            np.empty((len(arrays.hidden_rows), hidden_size), dtype=np.float32),
        )

    def result(self, plan: StepPlan, arrays: StepArrays) -> StepResult:
        """As the core understands it."""
        draws = arrays.num_draws
        tokens = self.tokens[:draws].tolist()
        codes = self.tokens[draws : 2 * draws].tolist()
        errors = {i: _ERRORS[code] for i, code in enumerate(codes) if code} if any(codes) else {}
        pooled = self._pooled(plan) if len(self.hidden) else {}
        if not arrays.has_logprobs:
            return StepResult(tokens, errors=errors, pooled=pooled)
        found: dict[int, TokenLogprobs] = {}
        prompt: dict[int, list[TokenLogprobs]] = {}
        draw = row = top = 0
        for seq in plan.seqs:
            if seq.num_prompt_logprobs is not None:
                num_top = arrays.count_top(seq.num_prompt_logprobs)
                targets = prompt.setdefault(seq.seq_id, [])
                for target in seq.prompt_targets:
                    targets.append(self._logprobs(target, draws + row, top, num_top, draws))
                    row, top = row + 1, top + num_top
            row += len(seq.draw_offsets)
            wanted = seq.sampling[0].params.logprobs if seq.sampling else None
            if wanted is not None:
                num_top = arrays.count_top(wanted)
                for i in range(draw, draw + seq.num_draws):
                    if i not in errors:
                        found[i] = self._logprobs(tokens[i], i, top, num_top, draws)
                    top += num_top
            draw += seq.num_draws
        return StepResult(tokens, found, errors, prompt, pooled)

    def _pooled(self, plan: StepPlan) -> "dict[int, array[float]]":
        """The sums of the hidden states of each sequence that wants one."""
        pooled: dict[int, array[float]] = {}
        first = 0
        for seq in plan.seqs:
            if seq.num_pooled:
                states = self.hidden[first : first + seq.num_pooled]
                pooled[seq.seq_id] = array("d", states.sum(axis=0, dtype=np.float64))
                first += seq.num_pooled
        return pooled

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
