"""What counts as a JSON body."""

import json

import pytest

from octavo.errors import InvalidParameterError
from octavo.server.json_body import MAX_DEPTH, parse_json_object


def test_an_object_is_parsed() -> None:
    body = b'{"a": [1, 2.5, null, true], "b": {"c": "\\u4e16\\ud83d\\ude00"}}'
    assert parse_json_object(body) == {"a": [1, 2.5, None, True], "b": {"c": "世😀"}}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (b"   ", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"a": 1} x', "not valid JSON"),
        (b"{'a': 1}", "not valid JSON"),
        (b'{"a": 1,}', "not valid JSON"),
        (b"[]", "an array"),
        (b"null", "null"),
        (b'"text"', "a string"),
        (b"true", "a boolean"),
        (b"5", "a number"),
        (b'\xef\xbb\xbf{"a": 1}', "byte order mark"),
        (b'{"a": "\xff"}', "UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1e309}', "too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"m": [{"a": 1, "b": 2, "a": 1}]}', "twice"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"\\uDC00": 1}', "surrogate"),
    ],
)
def test_other_bodies_are_refused(body: bytes, says: str) -> None:
    with pytest.raises(InvalidParameterError, match=says):
        parse_json_object(body)


def test_a_repeated_name_is_the_parameter() -> None:
    with pytest.raises(InvalidParameterError) as caught:
        parse_json_object(b'{"n": 1, "n": 2}')
    assert caught.value.parameter == "n"


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 10_000, 1_000_000])
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
def test_depth_is_bounded(depth: int, opened: str, closed: str) -> None:
    body = '{"a":' + opened * (depth - 1) + "1" + closed * (depth - 1) + "}"
    with pytest.raises(InvalidParameterError, match=r"nested|arrays and objects"):
        parse_json_object(body.encode())


def test_the_allowed_depth_and_wide_bodies_pass() -> None:
    deep = '{"a":' + "[" * (MAX_DEPTH - 1) + "1" + "]" * (MAX_DEPTH - 1) + "}"
    assert parse_json_object(deep.encode())
    wide = {"a": [[i] for i in range(1000)], "b": "[" * 1000}
    assert parse_json_object(json.dumps(wide).encode()) == wide
