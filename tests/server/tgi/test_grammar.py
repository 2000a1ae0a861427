"""Text Generation Inference's `grammar`: answers of a form, whole and streamed, and what is wrong with one in its words."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from support.engine_without_grammars import MODULE as WITHOUT_GRAMMARS
from support.server_process import running_server, tiny_config

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"enum": ["Rex", "Tom"]}, "age": {"enum": [1, 2, 3]}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
GRAMMARS: list[dict[str, Any]] = [
    {"type": "json", "value": SCHEMA},
    {"type": "json", "value": json.dumps(SCHEMA)},
    {"type": "json_object", "value": SCHEMA},  # the same under TGI's second name
    {"type": "json_schema", "value": {"name": "pet", "schema": SCHEMA}},
    {"type": "regex", "value": "[0-9]{3}-[a-f]{2}"},
]


def body(**parameters: Any) -> dict[str, Any]:
    return {"inputs": "abcabc", "parameters": {"max_new_tokens": 80, **parameters}}


def check(text: str, grammar: dict[str, Any]) -> None:
    if grammar["type"] == "regex":
        assert re.fullmatch(grammar["value"], text)
    else:
        jsonschema.validate(json.loads(text), SCHEMA)


@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: grammar["type"])
@pytest.mark.parametrize("sampling", [{}, {"seed": 3, "temperature": 1.5}], ids=["greedy", "drawn"])
def test_answers_have_the_form_streamed_or_not(
    real_http: httpx.Client, grammar: dict[str, Any], sampling: dict[str, Any]
) -> None:
    asked = body(grammar=grammar, details=True, **sampling)
    whole = real_http.post("/generate", json=asked).json()
    check(whole["generated_text"], grammar)
    assert whole["details"]["finish_reason"] == "eos_token"
    streamed = real_http.post("/generate_stream", json=asked).text.split("\n\n")[:-1]
    events = [json.loads(event.removeprefix("data:")) for event in streamed]
    assert events[-1]["generated_text"] == whole["generated_text"]
    tokens = [token["id"] for token in whole["details"]["tokens"]]
    assert [event["token"]["id"] for event in events] == tokens


def test_all_candidates_of_best_of_have_it(real_http: httpx.Client) -> None:
    grammar = GRAMMARS[-1]
    asked = body(grammar=grammar, best_of=2, do_sample=True, details=True)
    answer = real_http.post("/generate", json=asked).json()
    (other,) = answer["details"]["best_of_sequences"]
    for text in (answer["generated_text"], other["generated_text"]):
        check(text, grammar)


def test_what_the_limit_cuts_is_called_so(real_http: httpx.Client) -> None:
    asked = body(grammar=GRAMMARS[0], details=True)
    asked["parameters"]["max_new_tokens"] = 5
    answer = real_http.post("/generate", json=asked).json()
    assert answer["details"]["finish_reason"] == "length"
    assert answer["generated_text"].startswith("{")


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ({"type": "regex", "value": "["}, "grammar is not valid: "),
        ({"type": "regex", "value": 7}, "grammar is not valid: regex must be text; given: 7"),
        ({"type": "json", "value": "{"}, "grammar is not valid: json is not valid JSON"),
        ({"type": "json", "value": {"type": "what"}}, "grammar is not valid: "),
        ({"type": "json", "value": False}, "grammar is not valid: #: no value is valid"),
        ({"type": "json_schema", "value": SCHEMA}, "the value must be an object with a schema"),
        ({"type": "lark", "value": "x"}, "type must be json, json_object, json_schema or regex"),
        ({"type": "regex"}, "it must have a type and a value; given: type"),
        ({"type": "regex", "value": "a", "flags": "i"}, "it must have a type and a value"),
        ("regex", "grammar"),
    ],
)
@pytest.mark.parametrize("path", ["/generate", "/generate_stream"])
def test_a_grammar_that_cannot_be_followed(
    real_http: httpx.Client, path: str, grammar: object, message: str
) -> None:
    response = real_http.post(path, json=body(grammar=grammar))
    assert (response.status_code, response.json()["error_type"]) == (422, "validation")
    assert response.json()["error"].startswith("Input validation error: ")
    assert message in response.json()["error"]


@pytest.mark.parametrize(
    ("response_format", "is_regex"),
    [
        ({"type": "json", "value": SCHEMA}, False),
        ({"type": "json_object", "value": SCHEMA}, False),
        ({"type": "json_schema", "value": {"name": "pet", "schema": SCHEMA}}, False),
        ({"type": "regex", "value": GRAMMARS[-1]["value"]}, True),
    ],
)
def test_in_a_chat_it_is_the_response_format(
    real_http: httpx.Client, response_format: dict[str, Any], is_regex: bool
) -> None:
    chat = {
        "messages": [{"role": "user", "content": "abc"}],
        "max_tokens": 80,
        "response_format": response_format,
    }
    answer = real_http.post("/v1/chat/completions", json=chat)
    text = answer.json()["choices"][0]["message"]["content"]
    check(text, GRAMMARS[-1] if is_regex else GRAMMARS[0])
    assert "x-octavo-ignored-fields" not in answer.headers


@pytest.mark.parametrize("name", ["json", "regex", "what"])
def test_a_response_format_of_tgi_needs_its_value(real_http: httpx.Client, name: str) -> None:
    chat = {"messages": [{"role": "user", "content": "abc"}], "response_format": {"type": name}}
    response = real_http.post("/v1/chat/completions", json=chat)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "response_format"


def test_without_the_library_it_says_what_to_install(model_folder: Path) -> None:
    with (
        running_server(tiny_config(model_folder), engine_module=WITHOUT_GRAMMARS) as server,
        httpx.Client(base_url=server.url, timeout=30) as client,
    ):
        for path in ("/generate", "/generate_stream"):
            response = client.post(path, json=body(grammar=GRAMMARS[-1]))
            assert response.status_code == 422
            assert response.json()["error"] == (
                "Input validation error: grammar: this needs the package llguidance; pip install 'octavo[grammars]'"
            )
        assert client.post("/generate", json=body(max_new_tokens=2)).status_code == 200
        server.wait_idle()
