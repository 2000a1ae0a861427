"""The lines of a batch file: what is a request, and what is wrong with one that is none."""

import json
from typing import Any

import pytest

from octavo.errors import InvalidParameterError
from octavo.server.batch.lines import read_request

LINE: dict[str, Any] = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"n": 2}}  # fmt: skip


def read(**fields: Any) -> Any:
    line = {name: value for name, value in (LINE | fields).items() if value is not ...}
    return read_request(json.dumps(line).encode() + b"\n", 7)


def test_a_line_is_a_request() -> None:
    request = read(method=...)
    assert (request.custom_id, request.url) == ("a", "/v1/completions")
    assert json.loads(request.body) == {"n": 2}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"custom_id": ...}, "custom_id"),
        ({"custom_id": ""}, "custom_id"),
        ({"custom_id": 5}, "custom_id"),
        ({"method": "GET"}, "method"),
        ({"url": ...}, "url"),
        ({"url": "/v1/images"}, "url"),
        ({"body": ...}, "body"),
        ({"body": []}, "body"),
        ({"body": {"stream": True}}, "body.stream"),
        ({"colour": 1}, "colour"),
    ],
)
def test_what_is_no_request_is_named(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameterError, match=f"^line 7: .*{name}") as caught:
        read(**fields)
    assert caught.value.parameter == name
