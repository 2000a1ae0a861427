"""The request fields of a beam search."""

from octavo.core.beam_search import MAX_BEAM_WIDTH, MIN_BEAM_WIDTH, BeamSearchParams
from octavo.errors import InvalidParameterError, UnsupportedParameterError
from octavo.server.openai.requests import GenerationBody
from octavo.server.openai.structured_outputs import form_field

_REFUSED = (
    "stream", "best_of", "min_tokens", "frequency_penalty", "presence_penalty", "stop", "stop_token_ids",
    "logit_bias", "allowed_token_ids", "bad_words", "logprobs", "prompt_logprobs", "return_kv_usage",
)  # fmt: skip
"""What would change the beams, or the answer, and is not part of the search."""


def beam_search_params(body: GenerationBody, max_tokens: int) -> BeamSearchParams | None:
    """What to search for; None if the request asks for no beams. As vLLM's, a request has `n` beams.

    Raises InvalidParameterError, UnsupportedParameterError.
    """
    if not body.use_beam_search:
        return None
    if (form := form_field(body)) is not None:
        raise UnsupportedParameterError(
            f"{form} is not supported with use_beam_search: beams follow no grammar", parameter=form
        )
    for name in _REFUSED:
        value = getattr(body, name)
        if value:  # null, false, 0 and empty lists ask for nothing
            raise UnsupportedParameterError(
                f"{name} is not supported with use_beam_search", parameter=name, value=value
            )
    if body.repetition_penalty not in (None, 1.0):
        raise UnsupportedParameterError(
            "repetition_penalty is not supported with use_beam_search",
            parameter="repetition_penalty",
            value=body.repetition_penalty,
        )
    width = 1 if body.n is None else body.n
    if not MIN_BEAM_WIDTH <= width <= MAX_BEAM_WIDTH:
        raise InvalidParameterError(
            f"n is the number of beams with use_beam_search: from {MIN_BEAM_WIDTH} to {MAX_BEAM_WIDTH}; "
            f"given: {width}",
            parameter="n",
            value=width,
        )
    return BeamSearchParams(
        beam_width=width,
        max_tokens=max_tokens,
        ignore_eos=bool(body.ignore_eos),
        temperature=body.temperature or 0.0,
        length_penalty=1.0 if body.length_penalty is None else body.length_penalty,
        early_stopping=False if body.early_stopping is None else body.early_stopping,
    )
