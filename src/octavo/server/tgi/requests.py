"""The fields of Text Generation Inference's requests."""

from typing import Any, ClassVar

from octavo.server.openai.fields import Int, KnownFields, NestedBody, Refused, RequestBody


class GenerateParameters(NestedBody):
    """How to generate. Limits and their texts: `validation`."""

    known: ClassVar[KnownFields] = KnownFields(
        no_effect=frozenset(),
        refused={
            "typical_p": Refused("typical sampling is not available"),
            "watermark": Refused("watermarks are not available", (False,)),
            "adapter_id": Refused("adapters are not available"),
        },
    )

    best_of: Int | None = None
    """Choices that are made, of which the most likely is the answer."""
    temperature: float | None = None
    """Above 0. This, `top_k` and `top_p` turn sampling on."""
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    top_k: Int | None = None
    top_p: float | None = None
    do_sample: bool | None = None
    """Null: no. Without any `parameters`: yes, as in TGI."""
    max_new_tokens: Int | None = None
    """Null: to the end of the context."""
    return_full_text: bool | None = None
    """Put the prompt in front of the text."""
    stop: list[str] | None = None
    """Texts that end the answer; they stay in it."""
    truncate: Int | None = None
    """Keep only so many tokens of the prompt, its last ones."""
    details: bool | None = None
    decoder_input_details: bool | None = None
    """Log-probabilities of the prompt."""
    seed: Int | None = None
    top_n_tokens: Int | None = None
    """Most likely tokens to report at each position."""
    grammar: dict[str, Any] | None = None
    """The form of the answer: `type` (json, json_schema or regex) and `value` (the schema or the expression)."""


class GenerateRequest(RequestBody):
    """POST /generate, /generate_stream, / and /tokenize."""

    inputs: str
    parameters: GenerateParameters | None = None
    stream: bool | None = None
    """Only of POST /: answer with a stream."""
    add_special_tokens: bool | None = None
    """Null: yes."""


GENERATE_FIELDS = KnownFields(
    # The hub's own front end takes these; they say nothing about the answer here.
    no_effect=frozenset({"options", "model"}),
    refused={},
)
