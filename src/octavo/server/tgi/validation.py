"""Text Generation Inference's rules for requests, in its words, and what a valid request means to the sampler.

The model's generation config sets nothing here: TGI does not read it.
"""

import random
from dataclasses import dataclass
from typing import Any, NoReturn

from octavo.core.sampling_params import SamplingParams
from octavo.core.structured_outputs import StructuredOutputsParams
from octavo.errors import InvalidParameterError
from octavo.server.openai.limits import check_words_len
from octavo.server.openai.structured_outputs import form_of, tgi_options
from octavo.server.tgi.requests import GenerateParameters, GenerateRequest

MAX_BEST_OF = 2
MAX_STOP_SEQUENCES = 4
MAX_TOP_N_TOKENS = 5
"""As TGI's launcher sets these three by default."""
FORM_FIELD = "grammar"
_NUM_SEEDS = 2**63


@dataclass(frozen=True, slots=True)
class Validated:
    """What a request asks for. `params` has no `max_tokens` if the request leaves it open."""

    params: SamplingParams
    seed: int | None
    """The one that was given, or drawn for it; None: nothing is drawn."""
    truncate: int | None
    wants_details: bool
    wants_prefill: bool
    top_n_tokens: int
    returns_full_text: bool


def validate(request: GenerateRequest, *, streams: bool, max_input_tokens: int) -> Validated:
    """Check a request as far as it can be without tokens. Raises InvalidParameterError."""
    given = request.parameters
    # As in TGI: without parameters tokens are drawn; with an empty object they are not.
    parameters = GenerateParameters(do_sample=True) if given is None else given
    best_of = 1 if parameters.best_of is None else parameters.best_of
    samples = bool(parameters.do_sample) or any(
        value is not None for value in (parameters.temperature, parameters.top_k, parameters.top_p)
    )
    _check_best_of(parameters, best_of, samples=samples, streams=streams)
    if streams and parameters.decoder_input_details:
        _refuse(
            "decoder_input_details",
            True,
            "`decoder_input_details` == true is not supported when streaming tokens",
        )
    _check_numbers(parameters)
    _check_lists(parameters)
    if not request.inputs:
        _refuse("inputs", "", "`inputs` cannot be empty")
    truncate = parameters.truncate
    if truncate is not None and not 0 < truncate <= max_input_tokens:
        _refuse(
            "truncate",
            truncate,
            f"`truncate` must be strictly positive and less than {max_input_tokens}. Given: {truncate}",
        )
    seed = parameters.seed
    if samples and seed is None:
        seed = random.randrange(_NUM_SEEDS)
    wants_prefill = bool(parameters.decoder_input_details)
    wants_details = bool(parameters.details) or wants_prefill
    return Validated(
        params=_params(
            parameters,
            best_of=best_of,
            samples=samples,
            seed=seed,
            wants_logprobs=wants_details or streams or best_of > 1,
        ),
        seed=seed if samples else None,
        truncate=truncate,
        wants_details=wants_details,
        wants_prefill=wants_prefill,
        top_n_tokens=parameters.top_n_tokens or 0,
        returns_full_text=bool(parameters.return_full_text),
    )


def check_lengths(num_input_tokens: int, max_new_tokens: int | None, max_total_tokens: int) -> None:
    """Raise InvalidParameterError if input and answer do not fit the context."""
    wanted = 0 if max_new_tokens is None else max_new_tokens
    if num_input_tokens + wanted > max_total_tokens:
        _refuse(
            "max_new_tokens",
            max_new_tokens,
            f"`inputs` tokens + `max_new_tokens` must be <= {max_total_tokens}. "
            f"Given: {num_input_tokens} `inputs` tokens and {wanted} `max_new_tokens`",
        )
    if num_input_tokens >= max_total_tokens:
        _refuse(
            "inputs",
            num_input_tokens,
            f"`inputs` must have less than {max_total_tokens} tokens. Given: {num_input_tokens}",
        )


def _params(
    parameters: GenerateParameters,
    *,
    best_of: int,
    samples: bool,
    seed: int | None,
    wants_logprobs: bool,
) -> SamplingParams:
    return SamplingParams(
        n=best_of,
        temperature=_or(parameters.temperature, 1.0) if samples else 0.0,
        top_p=_or(parameters.top_p, 1.0),
        top_k=0 if parameters.top_k is None else parameters.top_k,
        repetition_penalty=_or(parameters.repetition_penalty, 1.0),
        frequency_penalty=_or(parameters.frequency_penalty, 0.0),
        seed=None if seed is None else seed % _NUM_SEEDS,  # TGI's have 64 bits without a sign
        stop=tuple(parameters.stop or ()),
        include_stop_str_in_output=True,
        max_tokens=parameters.max_new_tokens,
        logprobs=(parameters.top_n_tokens or 0) if wants_logprobs else None,
        prompt_logprobs=0 if parameters.decoder_input_details else None,
        structured_outputs=_form(parameters.grammar),
    )


def _form(grammar: dict[str, Any] | None) -> StructuredOutputsParams | None:
    if grammar is None:
        return None
    kind = grammar.get("type")
    if not isinstance(kind, str) or set(grammar) != {"type", "value"}:
        names = ", ".join(grammar)[:80]
        _refuse(FORM_FIELD, names, f"grammar: it must have a type and a value; given: {names}")
    return form_of(tgi_options(kind, grammar["value"], FORM_FIELD), FORM_FIELD)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _check_best_of(
    parameters: GenerateParameters, best_of: int, *, samples: bool, streams: bool
) -> None:
    if not 0 < best_of <= MAX_BEST_OF:
        _refuse("best_of", best_of, f"`best_of` must be > 0 and <= {MAX_BEST_OF}. Given: {best_of}")
    if best_of == 1:
        return
    if streams:
        _refuse("best_of", best_of, "`best_of` != 1 is not supported when streaming tokens")
    if not samples:
        _refuse("best_of", best_of, "you must use sampling when `best_of` is > 1")
    if parameters.seed is not None:
        _refuse("seed", parameters.seed, "`seed` must not be set when `best_of` > 1")


def _check_numbers(parameters: GenerateParameters) -> None:
    for name in ("temperature", "repetition_penalty", "top_k", "max_new_tokens"):
        value = getattr(parameters, name)
        if value is not None and not value > 0:
            _refuse(name, value, f"`{name}` must be strictly positive")
    penalty = parameters.frequency_penalty
    if penalty is not None and not -2.0 <= penalty <= 2.0:
        _refuse("frequency_penalty", penalty, "`frequency_penalty` must be >= -2.0 and <= 2.0")
    if parameters.top_p is not None and not 0.0 < parameters.top_p < 1.0:
        _refuse("top_p", parameters.top_p, "`top_p` must be > 0.0 and < 1.0")
    if parameters.seed is not None and not 0 <= parameters.seed < 2 * _NUM_SEEDS:
        _refuse(
            "seed",
            parameters.seed,
            f"`seed` must be >= 0 and < {2 * _NUM_SEEDS}. Given: {parameters.seed}",
        )


def _check_lists(parameters: GenerateParameters) -> None:
    num_stops = len(parameters.stop or ())
    if num_stops > MAX_STOP_SEQUENCES:
        _refuse(
            "stop",
            num_stops,
            f"`stop` supports up to {MAX_STOP_SEQUENCES} stop sequences. Given: {num_stops}",
        )
    check_words_len("stop", parameters.stop or ())
    top_n = parameters.top_n_tokens
    if top_n is not None and not 0 <= top_n <= MAX_TOP_N_TOKENS:
        _refuse(
            "top_n_tokens",
            top_n,
            f"`top_n_tokens` must be >= 0 and <= {MAX_TOP_N_TOKENS}. Given: {top_n}",
        )


def _refuse(parameter: str, value: object, message: str) -> NoReturn:
    raise InvalidParameterError(message, parameter=parameter, value=value)
