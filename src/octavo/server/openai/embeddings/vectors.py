"""Vectors as a request wants them."""

import base64

import numpy as np
from numpy.typing import NDArray

from octavo.errors import InvalidParameterError
from octavo.server.openai.embeddings.request import EmbeddingsRequest

Vector = NDArray[np.float32]


def check_dimensions(dimensions: int | None, hidden_size: int) -> None:
    """Raise InvalidParameterError for more numbers than a vector has."""
    if dimensions is not None and dimensions > hidden_size:
        raise InvalidParameterError(
            f"dimensions must be at most {hidden_size}, what the model's vectors have; given: {dimensions}",
            parameter="dimensions",
            value=dimensions,
        )


def finished(vector: Vector, body: EmbeddingsRequest) -> list[float] | str:
    """Cut, normalized and encoded."""
    vector = vector[: body.dimensions]
    if body.normalize is not False:
        vector = normalized(vector)
    if body.encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    values: list[float] = vector.tolist()
    return values


def normalized(vector: Vector) -> Vector:
    """The vector of length 1 in the same direction; of zeros, zeros."""
    length = float(np.sqrt((vector.astype(np.float64) ** 2).sum()))
    return (vector / np.float32(length)).astype(np.float32) if length else vector
