"""The tensors of a text model, by the names that Triton's vLLM backend has for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.server.kserve.tensors import TensorSpec

VERSION = "1"
"""There is one version of each model."""
_ONE, _ANY = (1,), (-1,)
INPUTS = (
    TensorSpec("text_input", "BYTES", _ONE),
    TensorSpec("stream", "BOOL", _ONE),
    TensorSpec("sampling_parameters", "BYTES", _ONE),
    TensorSpec("exclude_input_in_output", "BOOL", _ONE),
    TensorSpec("return_finish_reason", "BOOL", _ONE),
    TensorSpec("return_cumulative_logprob", "BOOL", _ONE),
    TensorSpec("return_logprobs", "BOOL", _ONE),
    TensorSpec("return_num_input_tokens", "BOOL", _ONE),
    TensorSpec("return_num_output_tokens", "BOOL", _ONE),
)
"""All but the first are optional."""
OUTPUTS = (
    TensorSpec("text_output", "BYTES", _ANY),
    TensorSpec("finish_reason", "BYTES", _ANY),
    TensorSpec("cumulative_logprob", "FP32", _ANY),
    TensorSpec("logprobs", "BYTES", _ANY),
    TensorSpec("num_input_tokens", "UINT32", _ONE),
    TensorSpec("num_output_tokens", "UINT32", _ANY),
)
"""One element a choice. All but the first only where an input asks for them."""

INPUT_OF_NAME = {spec.name: spec for spec in INPUTS}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for besides how to generate."""

    text_input: str
    stream: bool
    exclude_input: bool
    """Leave the text of the prompt out of the answer."""
    outputs: frozenset[str]
    """Names of the tensors that are wanted besides the text."""

    @property
    def wants_logprobs(self) -> bool:
        """Whether the engine has to report log-probabilities."""
        return not self.outputs.isdisjoint(("cumulative_logprob", "logprobs"))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Asked":
        """From the values of the inputs, by name; the text is there."""
        streams = bool(values.get("stream"))
        return cls(
            text_input=values["text_input"],
            stream=streams,
            # A stream never repeats its input.
            exclude_input=bool(values.get("exclude_input_in_output", streams)),
            outputs=frozenset(
                spec.name for spec in OUTPUTS[1:] if values.get(f"return_{spec.name}")
            ),
        )
