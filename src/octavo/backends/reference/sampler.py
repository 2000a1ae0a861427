"""Choosing a token from a row of logits: the specification that every sampling kernel follows.

In order: log-probabilities of the row as the model made it; allowed, masked, forbidden and biased ids; penalties;
then the largest logit, or a draw from what min_p, top_k and top_p leave.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.backends.reference.philox import uniform
from octavo.core.step import Sample, SampledToken, TokenLogprobs

Row = NDArray[np.float32]

NOT_FINITE = "the logits are not finite"
NOTHING_ALLOWED = "no token is allowed: all are masked"


def sample_token(logits: Row, sample: Sample, mask: bytes | None = None) -> SampledToken:
    """Draw one token from raw logits, float32 [V]; `mask` as in `StepPlan`.

    A row without an answer gives `SampledToken.error`.
    """
    adjusted = adjust_logits(logits, sample, mask)
    # The model's own row, or one that an extreme penalty has made overflow.
    if not (_is_usable(logits) and _is_usable(adjusted)):
        return SampledToken(0, error=NOT_FINITE)
    if np.isneginf(adjusted).all():
        return SampledToken(0, error=NOTHING_ALLOWED)
    if sample.params.is_greedy:
        token_id = int(np.argmax(adjusted))  # the first of equals
    else:
        token_id = draw(adjusted, sample)
    logprobs = None
    if sample.params.logprobs is not None:
        logprobs = token_logprobs(logits, token_id, sample.params.logprobs)
    return SampledToken(token_id, logprobs)


def _is_usable(row: Row) -> bool:
    """Minus infinity is a mask; NaN and infinity are faults."""
    return not (np.isnan(row).any() or np.isposinf(row).any())


def token_logprobs(logits: Row, token_id: int, num_top: int) -> TokenLogprobs:
    """Log-probability and rank of a token, and the `num_top` most likely (-1: all), from raw logits."""
    values = logits.astype(np.float64)
    largest = values.max()
    logprobs = values - (largest + np.log(np.exp(values - largest).sum()))
    if num_top == -1:
        num_top = len(values)
    top = [(int(i), float(logprobs[i])) for i in largest_ids(values, num_top)]
    rank = 1 + int((values > values[token_id]).sum())
    return TokenLogprobs(token_id, float(logprobs[token_id]), rank, tuple(top))


def largest_ids(values: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Ids of the `count` largest values, largest first, lower ids first among equals."""
    count = min(count, len(values))
    if count == 0:
        return np.empty(0, np.int64)
    threshold = np.partition(values, len(values) - count)[len(values) - count]
    candidates = np.flatnonzero(values >= threshold)
    return candidates[np.argsort(-values[candidates], kind="stable")][:count]


def adjust_logits(logits: Row, sample: Sample, mask: bytes | None = None) -> Row:
    """Masks, biases and penalties, in this order, all in float32."""
    params = sample.params
    row: Row = logits.copy()
    if params.allowed_token_ids is not None:
        allowed = list(params.allowed_token_ids)
        row = np.full_like(row, -np.inf)
        row[allowed] = logits[allowed]
    if mask is not None:
        bits = np.unpackbits(np.frombuffer(mask, np.uint8), count=len(row), bitorder="little")
        row[bits == 0] = -np.inf
    tokens = (
        np.frombuffer(sample.token_ids, np.int32) if sample.token_ids else np.empty(0, np.int32)
    )
    for word in params.bad_words_token_ids:
        # The last id of a word is forbidden where the tokens before it are already there.
        before, last = word[:-1], word[-1]
        if len(before) <= len(tokens) and tuple(tokens[len(tokens) - len(before) :]) == before:
            row[last] = -np.inf
    row[list(sample.suppressed_token_ids)] = -np.inf
    for token_id, bias in params.logit_bias.items():
        row[token_id] += np.float32(bias)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        _penalise(row, tokens, sample)
    return row


def _penalise(row: Row, tokens: NDArray[np.int32], sample: Sample) -> None:
    params = sample.params
    if params.repetition_penalty != 1.0:
        seen = np.unique(tokens)
        factor = np.float32(params.repetition_penalty)
        row[seen] = np.where(row[seen] > 0, row[seen] / factor, row[seen] * factor)
    generated, counts = np.unique(tokens[sample.prompt_len :], return_counts=True)
    row[generated] -= np.float32(params.frequency_penalty) * counts.astype(np.float32)
    row[generated] -= np.float32(params.presence_penalty)


def draw(adjusted: Row, sample: Sample) -> int:
    """A token from softmax(logits / temperature), cut by min_p, top_k and top_p, in float64."""
    scaled = adjusted.astype(np.float64) / sample.params.temperature
    probs = np.exp(scaled - scaled.max())
    probs /= probs.sum()
    kept = kept_ids(probs, sample)
    running = np.cumsum(probs[kept])
    point = uniform(sample.seed, sample.output_index) * running[-1]
    return int(kept[np.searchsorted(running, point, side="right")])


def kept_ids(probs: NDArray[np.float64], sample: Sample) -> NDArray[np.int64]:
    """The ids that may be drawn, in increasing order; never none."""
    params = sample.params
    kept = np.flatnonzero(probs >= params.min_p * probs.max())
    if 0 < params.top_k < len(kept):
        kept = kept[largest_ids(probs[kept], params.top_k)]
    if params.top_p < 1.0:
        by_probability = kept[np.lexsort((kept, -probs[kept]))]
        shares = np.cumsum(probs[by_probability] / probs[kept].sum())
        # The shortest prefix that reaches top_p; all, if rounding keeps the whole sum below it.
        kept = by_probability[: np.searchsorted(shares, params.top_p, side="left") + 1]
    return np.sort(kept)
