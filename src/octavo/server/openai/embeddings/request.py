"""The request fields of POST /v1/embeddings."""

from typing import Annotated, Literal

from pydantic import Field

from octavo.server.openai.common_fields import RequestId, TermsFields
from octavo.server.openai.fields import Int, KnownFields, Refused
from octavo.server.openai.requests import PromptInput


class EmbeddingsRequest(TermsFields):
    """POST /v1/embeddings."""

    model: str | None = None
    input: PromptInput
    encoding_format: Literal["float", "base64"] | None = None
    """base64: the numbers as little-endian float32."""
    dimensions: Annotated[Int, Field(ge=1)] | None = None
    """Only the first numbers of each vector, normalized anew."""
    pooling: Literal["last", "mean"] | None = None
    """Which hidden states make the vector. Null: an encoder's own way, else last."""
    normalize: bool | None = None
    """Whether vectors have the length 1. Null: yes, unless an encoder says no."""
    truncate_prompt_tokens: Annotated[Int, Field(ge=-1)] | None = None
    """Cut texts after this many tokens; -1: after as many as the model takes."""
    truncation_side: Literal["left", "right"] | None = None
    """Which end is cut off; null: the right one."""
    add_special_tokens: bool | None = None
    request_id: RequestId = None


_TEXT_ONLY = "this server takes text only"
EMBEDDINGS_FIELDS = KnownFields(
    no_effect=frozenset(),
    refused={
        "messages": Refused("render them with a chat template and send the text"),
        "mm_processor_kwargs": Refused(_TEXT_ONLY, ({},)),
        "softmax": Refused("use normalize"),
        "activation": Refused("use normalize"),
        "use_activation": Refused("use normalize"),
        "embed_dtype": Refused("numbers are float32", ("float32",)),
        "endianness": Refused("numbers are little-endian", ("native", "little")),
    },
)
