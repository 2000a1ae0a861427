"""What a user may ask of the sampler. Names, defaults and limits are vLLM's."""

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from octavo.core.structured_outputs import StructuredOutputsParams
from octavo.core.vllm_options import knows_vllm_options
from octavo.errors import InvalidParameterError, UnsupportedParameterError

MAX_N = 16384
GREEDY_TEMPERATURE = 1e-5
"""Below this the most likely token is taken."""
MIN_TEMPERATURE = 1e-2
"""Smaller positive temperatures (from 1e-5 up) are raised to this: logits divided by them overflow."""
MAX_TEMPERATURE = 1e30
"""Far beyond where all tokens are equally likely; the kernels compute in float32."""
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 1e-6, 1e6
"""Logits divided or multiplied by these stay finite in float32."""
MAX_TOP_K = 2**31 - 1
"""More than any vocabulary: larger values mean the same."""
MAX_LOGIT_BIAS = 100.0
_TOKEN_ID = re.compile("0|-?[1-9][0-9]{0,18}")
"""One text for each id: `int` would also take "05", "1_0" and " 1"."""
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@knows_vllm_options
@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling, stopping and reporting options of one request.

    Raises InvalidParameterError with `.parameter` and `.value` at construction; what depends on the
    model (vocabulary, largest `logprobs`) is checked by `verify`. Options that vLLM has and this class has not
    raise UnsupportedParameterError if they would have an effect.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 and -1: off."""
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    max_tokens: int | None = 16
    """None: to the end of the context."""
    min_tokens: int = 0
    logprobs: int | None = None
    """Alternatives reported for each generated token; -1: the whole vocabulary."""
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    bad_words_token_ids: tuple[tuple[int, ...], ...] = ()
    """`bad_words` as token sequences; filled by the text layer, since only it has a tokenizer."""
    structured_outputs: StructuredOutputsParams | None = None
    """The form of the answer; None: free."""

    def __post_init__(self) -> None:
        put = object.__setattr__  # the one place where a frozen value is normalised
        put(self, "stop", (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ()))
        put(self, "stop_token_ids", tuple(self.stop_token_ids or ()))
        put(self, "bad_words", tuple(self.bad_words or ()))
        put(self, "bad_words_token_ids", tuple(tuple(w) for w in self.bad_words_token_ids))
        if self.allowed_token_ids is not None:
            put(self, "allowed_token_ids", tuple(self.allowed_token_ids))
        if self.seed == -1:
            put(self, "seed", None)
        put(self, "logit_bias", _parse_logit_bias(self.logit_bias))
        self._check_numbers()
        self._check_switches()
        self._check_lists()
        put(self, "top_k", min(self.top_k, MAX_TOP_K))
        if self.temperature < GREEDY_TEMPERATURE:
            if self.n > 1:
                raise InvalidParameterError(
                    f"n must be 1 with greedy sampling (temperature 0); given: {self.n}",
                    parameter="n",
                    value=self.n,
                )
            put(self, "temperature", 0.0)
            put(self, "top_p", 1.0)
            put(self, "top_k", 0)
            put(self, "min_p", 0.0)
        elif self.temperature < MIN_TEMPERATURE:
            put(self, "temperature", MIN_TEMPERATURE)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        """Whether tokens that are already there count."""
        return not (
            self.repetition_penalty == 1.0
            and self.frequency_penalty == self.presence_penalty == 0.0
        )

    def clone(self) -> "SamplingParams":
        """A copy; kept for callers of vLLM, values here never change."""
        return replace(self)

    def verify(self, *, vocab_size: int, max_logprobs: int) -> None:
        """Check what depends on the model. Raises InvalidParameterError."""
        for name, ids in (
            ("stop_token_ids", self.stop_token_ids),
            ("allowed_token_ids", self.allowed_token_ids or ()),
            ("logit_bias", tuple(self.logit_bias)),
            ("bad_words_token_ids", tuple(chain.from_iterable(self.bad_words_token_ids))),
        ):
            for token_id in ids:
                if not 0 <= token_id < vocab_size:
                    raise InvalidParameterError(
                        f"{name} must hold token ids from 0 to {vocab_size - 1}; given: {token_id}",
                        parameter=name,
                        value=token_id,
                    )
        for name, count in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            wanted = vocab_size if count == -1 else count
            if wanted is not None and max_logprobs != -1 and wanted > max_logprobs:
                raise InvalidParameterError(
                    f"{name} must be at most {max_logprobs} (--max-logprobs); given: {count}",
                    parameter=name,
                    value=count,
                )

    def _check_numbers(self) -> None:
        _integer("n", self.n, 1, MAX_N)
        _real("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _real("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _real(
            "repetition_penalty",
            self.repetition_penalty,
            MIN_REPETITION_PENALTY,
            MAX_REPETITION_PENALTY,
        )
        _real("temperature", self.temperature, 0.0, MAX_TEMPERATURE)
        _real("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _integer("top_k", self.top_k, -1, None)
        _real("min_p", self.min_p, 0.0, 1.0)
        if self.seed is not None:
            _integer("seed", self.seed, INT64_MIN, INT64_MAX)
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, 1, None)
        _integer("min_tokens", self.min_tokens, 0, None)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidParameterError(
                f"min_tokens must be at most max_tokens ({self.max_tokens}); given: {self.min_tokens}",
                parameter="min_tokens",
                value=self.min_tokens,
            )
        for name, count in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            if count is not None:
                _integer(name, count, -1, None)

    def _check_switches(self) -> None:
        for name in (
            "ignore_eos",
            "detokenize",
            "skip_special_tokens",
            "spaces_between_special_tokens",
            "include_stop_str_in_output",
        ):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise InvalidParameterError(
                    f"{name} must be True or False; given: {value!r}", parameter=name, value=value
                )

    def _check_lists(self) -> None:
        if self.structured_outputs is not None:
            self._check_structured_outputs()
        for name, texts in (("stop", self.stop), ("bad_words", self.bad_words)):
            for text in texts:
                if not isinstance(text, str) or not text:
                    raise InvalidParameterError(
                        f"{name} must hold non-empty strings; given: {text!r}",
                        parameter=name,
                        value=text,
                    )
        if self.stop and not self.detokenize:
            raise InvalidParameterError(
                "stop strings need detokenize=True", parameter="stop", value=self.stop
            )
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise InvalidParameterError(
                "allowed_token_ids must not be empty", parameter="allowed_token_ids", value=()
            )
        if () in self.bad_words_token_ids:
            raise InvalidParameterError(
                "bad_words_token_ids must hold non-empty sequences",
                parameter="bad_words_token_ids",
                value=(),
            )
        id_lists: tuple[tuple[str, Sequence[int]], ...] = (
            ("stop_token_ids", self.stop_token_ids),
            ("allowed_token_ids", self.allowed_token_ids or ()),
            *(("bad_words_token_ids", word) for word in self.bad_words_token_ids),
        )
        for name, ids in id_lists:
            for token_id in ids:
                _integer(name, token_id, 0, None)

    def _check_structured_outputs(self) -> None:
        given = self.structured_outputs
        if not isinstance(given, StructuredOutputsParams):
            raise InvalidParameterError(
                f"structured_outputs must be StructuredOutputsParams; given: {type(given).__name__}",
                parameter="structured_outputs",
                value=given,
            )
        if self.ignore_eos:
            raise UnsupportedParameterError(
                "ignore_eos is not supported with structured_outputs: an answer ends where its grammar does",
                parameter="ignore_eos",
                value=True,
            )


def _integer(name: str, value: object, low: int, high: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidParameterError(
            f"{name} must be an integer; given: {value!r}", parameter=name, value=value
        )
    if value < low or (high is not None and value > high):
        limits = f"at least {low}" if high is None else f"from {low} to {high}"
        raise InvalidParameterError(
            f"{name} must be {limits}; given: {value}", parameter=name, value=value
        )


def _real(name: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidParameterError(
            f"{name} must be a number; given: {value!r}", parameter=name, value=value
        )
    is_finite = (
        abs(value) <= sys.float_info.max
    )  # not isfinite: it fails for integers beyond float64
    inside = is_finite and value <= high and (value > low if open_low else value >= low)
    if not inside:
        lower = f"above {low:g}" if open_low else f"at least {low:g}"
        limits = lower if high == math.inf else f"{lower} and at most {high:g}"
        raise InvalidParameterError(
            f"{name} must be finite, {limits}; given: {value}", parameter=name, value=value
        )


def _parse_logit_bias(bias: Mapping[int, float] | None) -> dict[int, float]:
    parsed: dict[int, float] = {}
    for key, value in (bias or {}).items():
        _real("logit_bias", value, -math.inf, math.inf)
        parsed[_token_id(key)] = max(-MAX_LOGIT_BIAS, min(MAX_LOGIT_BIAS, float(value)))
    return parsed


def _token_id(key: object) -> int:
    """A key of `logit_bias`: an integer, or one as text, since JSON has no other keys."""
    if isinstance(key, str) and _TOKEN_ID.fullmatch(key):
        key = int(key)
    if isinstance(key, bool) or not isinstance(key, int):
        raise InvalidParameterError(
            f"logit_bias keys must be token ids; given: {key!r}", parameter="logit_bias", value=key
        )
    return key
