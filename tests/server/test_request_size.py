"""What is read of a body before a model is chosen: never an error, whatever the body is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.server.models.request_size import named_model, prompt_chars


@pytest.mark.parametrize(
    ("body", "name", "chars"),
    [
        ({"model": "a", "prompt": "12345"}, "a", 5),
        ({"prompt": ["12", "345"]}, None, 5),
        ({"model": "a", "prompt": [1, 2, 3]}, "a", 12),
        ({"model": None, "messages": [{"content": "12345678"}]}, None, 8),
        ({"model": "a", "messages": [{"content": [{"type": "text", "text": "1234"}]}]}, "a", 8),
        ({"inputs": "123", "parameters": {"x": "not counted"}}, None, 3),
        ({"model": 5, "prompt": "1"}, None, 1),
        ({"model": ["a"], "prompt": {"a": None, "b": True, "c": 7}}, None, 4),
    ],
)
def test_name_and_length(body: object, name: str | None, chars: int) -> None:
    data = json.dumps(body).encode()
    assert (named_model(data), prompt_chars(data)) == (name, chars)


@given(st.binary() | st.text().map(str.encode))
def test_bodies_that_are_not_json(body: bytes) -> None:
    assert named_model(body) is None
    assert prompt_chars(body) == 0


def test_deep_nesting_is_left_to_the_routes() -> None:
    body = b'{"model": "a", "prompt": ' + b"[" * 100_000
    assert (named_model(body), prompt_chars(body)) == (None, 0)
