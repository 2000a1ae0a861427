"""Fields that requests of several routes and dialects have in common, each written down once."""

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from octavo.core.sampling_params import INT64_MAX, INT64_MIN
from octavo.server.openai.fields import Int, RequestBody
from octavo.server.openai.limits import (
    MAX_ALLOWED_TOKEN_IDS,
    MAX_BAD_WORDS,
    MAX_LOGIT_BIASES,
    MAX_STOP_TOKEN_IDS,
)

_STRINGS = {"type": "array", "items": {"type": "string"}}
StopInput = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "string"}, _STRINGS]})]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
RequestId = Annotated[str, Field(min_length=1, max_length=256)] | None
"""Becomes part of the response's id."""


class SamplingFields(RequestBody):
    """How tokens are drawn, and what ends an answer or stays out of it. Limits of the numbers: `core.sampling_params`."""

    min_tokens: Int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: Int | None = None
    stop: StopInput = None
    stop_token_ids: Annotated[list[Int], Field(max_length=MAX_STOP_TOKEN_IDS)] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=MAX_LOGIT_BIASES)] | None = None
    allowed_token_ids: Annotated[list[Int], Field(max_length=MAX_ALLOWED_TOKEN_IDS)] | None = None
    bad_words: Annotated[list[str], Field(max_length=MAX_BAD_WORDS)] | None = None


class TermsFields(RequestBody):
    """On which terms a request is served: see `server.terms`."""

    priority: Annotated[Int, Field(ge=INT64_MIN, le=INT64_MAX)] | None = None
    """Lower is earlier; only with --scheduling-policy priority."""
    cache_salt: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Only requests with the same salt share the pages of equal beginnings."""
    user: str | None = None
    """Who asks. Tells tenants apart with --fair-share-by user."""
    timeout_s: Seconds = None
    """From the arrival of the request to its last token; then it ends with an error."""
