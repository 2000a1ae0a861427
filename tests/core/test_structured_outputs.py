"""What may be said about the form of an answer, and what is a mistake at once."""

from typing import Any

import pytest

from octavo.core.sampling_params import SamplingParams
from octavo.core.structured_outputs import MAX_GRAMMAR_CHARS, StructuredOutputsParams
from octavo.errors import UserError


def test_a_schema_is_kept_as_text_and_equal_ones_are_equal() -> None:
    one = StructuredOutputsParams(json={"type": "object"})
    assert one.json == '{"type": "object"}' and one.form == "json"
    assert {one: 1}[StructuredOutputsParams(json='{"type": "object"}')] == 1
    assert StructuredOutputsParams(json=True).json == "true"
    assert StructuredOutputsParams(choice=["a", "b", "a"]).choice == ("a", "b")
    assert StructuredOutputsParams(json_object=True, regex=None).form == "json_object"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "exactly one of"),
        ({"json_object": False}, "exactly one of"),
        ({"regex": "a", "choice": ["b"]}, "exactly one of"),
        ({"json": "{"}, "not valid JSON"),
        ({"json": "[]"}, "must be a schema"),
        ({"json": {"minimum": float("nan")}}, "must be a JSON schema"),
        ({"json": 5}, "must be text"),
        ({"regex": ""}, "must not be empty"),
        ({"regex": 5}, "must be text"),
        ({"choice": []}, "must not be empty"),
        ({"choice": ["a", ""]}, "non-empty strings"),
        ({"choice": "ab"}, "non-empty strings"),
        ({"regex": "a" * (MAX_GRAMMAR_CHARS + 1)}, "at most"),
        ({"regex": "a", "whitespace_pattern": " ?"}, "needs json"),
        ({"regex": "a", "disable_additional_properties": True}, "needs json"),
        (
            {"json": {}, "whitespace_pattern": " ?", "disable_any_whitespace": True},
            "contradicts",
        ),
        ({"json": {}, "disable_any_whitespace": 1}, "True or False"),
        ({"structural_tag": "x"}, "not supported"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        StructuredOutputsParams(**options)
    assert caught.value.parameter == "structured_outputs"
    assert len(str(caught.value)) < 400


def test_sampling_parameters_take_nothing_else() -> None:
    form = StructuredOutputsParams(regex="a")
    params = SamplingParams(structured_outputs=form, n=2, min_p=0.1, logit_bias={1: 2.0})
    assert params.clone().structured_outputs == form
    with pytest.raises(UserError, match="must be StructuredOutputsParams"):
        SamplingParams(structured_outputs={"regex": "a"})  # type: ignore[arg-type]
    with pytest.raises(UserError, match="ignore_eos") as caught:
        SamplingParams(structured_outputs=form, ignore_eos=True)
    assert caught.value.parameter == "ignore_eos"
