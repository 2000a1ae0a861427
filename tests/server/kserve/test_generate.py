"""Triton's generate: its fields, what each parameter does, and streams."""

import json
import re
from typing import Any

import httpx
import pytest

from octavo.server.kserve.parameters import PARAMETER_FIELDS, GenerateParameters, engine_priority
from octavo.server.openai.fields import KnownFields
from support.scripted_engine import Order

PROMPT = "<unk>hello<unk>"
PATH = "/v2/models/tiny/generate"
FORM_FIELDS = ("structured_outputs", "guided_decoding")


def generate(http: httpx.Client, text: str = PROMPT, **fields: Any) -> httpx.Response:
    body = {"text_input": text, "exclude_input_in_output": True, **fields}
    return http.post(PATH, json=body)


def text_of(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["text_output"]


def events(http: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    response = http.post(f"{PATH}_stream", json={"text_input": PROMPT, **body})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *frames, last = response.text.split("\n\n")
    assert last == ""
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def test_an_answer(http: httpx.Client) -> None:
    assert http.post(PATH, json={"text_input": PROMPT, "id": "a"}).json() == {
        "id": "a",
        "model_name": "tiny",
        "model_version": "1",
        "text_output": PROMPT + "hello",
    }
    assert text_of(generate(http)) == "hello"


def test_fields_may_stand_in_parameters_or_beside_them(http: httpx.Client) -> None:
    for fields in (
        {"max_tokens": 2},
        {"parameters": {"max_tokens": 2}},
        {"sampling_parameters": '{"max_tokens": 2}'},
        {"parameters": {"max_tokens": "2", "stream": False}},
    ):
        assert text_of(generate(http, **fields)) == "he"
    inside = {"parameters": {"exclude_input_in_output": True}}
    assert text_of(http.post(PATH, json={"text_input": PROMPT, **inside})) == "hello"


def test_outputs_by_flag(http: httpx.Client) -> None:
    names = ["finish_reason", "cumulative_logprob", "logprobs"]
    names += ["num_input_tokens", "num_output_tokens"]
    answer = generate(http, PROMPT, **{f"return_{name}": True for name in names}).json()
    assert (answer["finish_reason"], answer["num_input_tokens"]) == ("stop", 8)
    assert answer["num_output_tokens"] == len(json.loads(answer["logprobs"])) == 6
    assert answer["cumulative_logprob"] < 0
    assert set(generate(http).json()) == {"model_name", "model_version", "text_output"}


def test_a_stream_goes_token_by_token_only_if_asked(http: httpx.Client) -> None:
    whole = events(http)
    assert [event["text_output"] for event in whole] == [PROMPT + "hello"]
    parts = events(http, stream=True, return_finish_reason=True, return_num_output_tokens=True)
    assert "".join(event["text_output"] for event in parts) == "hello"
    assert [event["finish_reason"] for event in parts] == ["None"] * (len(parts) - 1) + ["stop"]
    assert sum(event["num_output_tokens"] for event in parts) == 6


def test_streams_and_their_limits(http: httpx.Client) -> None:
    refused = generate(http, stream=True)
    assert refused.status_code == 400
    assert "use generate_stream" in refused.json()["error"]
    repeats = http.post(
        f"{PATH}_stream",
        json={"text_input": PROMPT, "stream": True, "exclude_input_in_output": False},
    )
    assert repeats.json() == {
        "error": "When streaming, `exclude_input_in_output` = False is not allowed."
    }


def test_a_failure_in_the_middle_is_an_event(http: httpx.Client) -> None:
    prompt = f"<unk>{chr(Order.SLOW)}{chr(Order.NOT_FINITE)}ab<unk>"
    found = events(http, text_input=prompt, stream=True)
    assert [event["text_output"] for event in found[:-1]] == ["a", "b"]
    assert set(found[-1]) == {"error"}
    assert generate(http, prompt).status_code == 500


EFFECTS: dict[str, tuple[Any, Any]] = {
    "n": ({"n": 2, "temperature": 1.0}, ["hello", "hello"]),
    "max_tokens": ({"max_tokens": 2}, "he"),
    "min_tokens": ({"min_tokens": 7}, "hellox"),
    "stop": ({"stop": "l"}, "he"),
    "stop_token_ids": ({"stop_token_ids": ["l"]}, "he"),
    "ignore_eos": ({"ignore_eos": True, "max_tokens": 8}, "hello"),
    "include_stop_str_in_output": ({"include_stop_str_in_output": True, "stop": ["l"]}, "hel"),
    "skip_special_tokens": (
        {"skip_special_tokens": False, "include_stop_str_in_output": True},
        "hello<eos>",
    ),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_parameters_of_length_and_text(http: httpx.Client, name: str) -> None:
    given, expected = EFFECTS[name]
    if name == "stop_token_ids":
        (token_id,) = http.post(
            "/tokenize", json={"prompt": "l", "add_special_tokens": False}
        ).json()["tokens"]
        given = {"stop_token_ids": [token_id]}
    answer = text_of(generate(http, parameters=given))
    if name in ("min_tokens", "ignore_eos"):
        assert answer.startswith("hello")
        assert len(answer) > len("hello") or name == "ignore_eos"
    else:
        assert answer == expected


SAMPLING: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 1.9},
    "top_p": {"temperature": 1.9, "top_p": 0.05},
    "top_k": {"temperature": 1.9, "top_k": 1},
    "min_p": {"temperature": 1.9, "min_p": 0.9},
    "frequency_penalty": {"frequency_penalty": 2.0},
    "presence_penalty": {"presence_penalty": 2.0},
    "repetition_penalty": {"repetition_penalty": 3.0},
    "seed": {"temperature": 1.9, "seed": 6},
    "logit_bias": {"logit_bias": {"50": 100.0}},
    "allowed_token_ids": {"allowed_token_ids": [50, 51]},
    "bad_words": {},
    "logprobs": {},
}


@pytest.mark.parametrize("name", SAMPLING)
def test_parameters_of_sampling(real_generate: Any, name: str) -> None:
    given = SAMPLING[name]
    base = {"temperature": 0.0, "seed": 5}
    without = {**base, **{key: value for key, value in given.items() if key != name}}
    plain = real_generate(without)["text_output"]
    if name == "bad_words":
        given = {"bad_words": [plain[0]]}
    answer = real_generate({**without, **given})
    if name == "logprobs":
        positions = json.loads(real_generate({"logprobs": 3}, return_logprobs=True)["logprobs"])
        assert len(positions[0]) >= 3
    else:
        assert answer["text_output"] != plain


def test_every_parameter_has_a_test() -> None:
    tested = {*EFFECTS, *SAMPLING, *FORM_FIELDS, "priority", "timeout"}
    tested |= {"spaces_between_special_tokens"}
    assert tested == set(GenerateParameters.model_fields)


def test_spaces_between_special_tokens_is_checked_and_has_no_effect_with_this_tokenizer(
    http: httpx.Client,
) -> None:
    assert text_of(generate(http, parameters={"spaces_between_special_tokens": False})) == "hello"
    wrong = generate(http, parameters={"spaces_between_special_tokens": 3})
    assert "spaces_between_special_tokens" in wrong.json()["error"]


def test_priority_needs_the_policy_and_1_is_first(http: httpx.Client) -> None:
    refused = generate(http, parameters={"priority": 1})
    assert refused.status_code == 400
    assert "--scheduling-policy priority" in refused.json()["error"]
    assert text_of(generate(http, parameters={"priority": 0})) == "hello"
    assert engine_priority(1) < engine_priority(2) < engine_priority(2**31 - 1) < engine_priority(0)
    assert engine_priority(None) == 0


def _known() -> KnownFields:
    return PARAMETER_FIELDS


@pytest.mark.parametrize("name", sorted(_known().refused))
def test_what_is_not_available_is_refused_by_name(http: httpx.Client, name: str) -> None:
    response = generate(http, parameters={name: 77})
    assert response.status_code == 400
    assert response.json()["error"].startswith(f"{name} is not supported: ")
    for harmless in _known().refused[name].harmless:
        assert text_of(generate(http, parameters={name: harmless})) == "hello"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_tokens": "two"}, "max_tokens must be a number"),
        ({"max_tokens": -1}, "max_tokens must be"),
        ({"max_tokens": 5000}, "maximum context length is 1024"),
        ({"temperature": -1}, "temperature must be"),
        ({"stop": 5}, "stop must be a string or a list of strings"),
        ("x", "parameters must be an object"),
    ],
)
def test_wrong_parameters_are_named(http: httpx.Client, parameters: Any, message: str) -> None:
    response = generate(http, parameters=parameters)
    assert response.status_code == 400
    assert message in response.json()["error"]


def test_unknown_parameters_are_named(http: httpx.Client) -> None:
    response = generate(http, parameters={"colour": 1}, shape=2)
    assert response.headers["x-octavo-ignored-fields"] == "colour, shape"


def test_sampling_parameters_must_be_json(http: httpx.Client) -> None:
    assert "sampling_parameters is not valid JSON" in generate(http, sampling_parameters="{").text


@pytest.mark.parametrize("name", FORM_FIELDS)
@pytest.mark.parametrize("as_text", [False, True])
def test_answers_have_the_form_that_is_asked_for(
    real_http: httpx.Client, name: str, as_text: bool
) -> None:
    options: dict[str, Any] = {"regex": "[0-9]{3}-[a-f]{2}"}
    given = json.dumps(options) if as_text else options
    parameters = {name: given, "max_tokens": 24, "temperature": 0}
    asked: dict[str, Any] = {"text_input": "abc", "exclude_input_in_output": True}
    whole = real_http.post(
        "/v2/models/tiny/generate", json={**asked, "parameters": parameters}
    ).json()
    assert re.fullmatch(options["regex"], whole["text_output"])
    streamed = real_http.post(
        "/v2/models/tiny/generate_stream", json={**asked, "stream": True, "parameters": parameters}
    )
    events = [
        json.loads(event.removeprefix("data: ")) for event in streamed.text.split("\n\n")[:-1]
    ]
    assert "".join(event["text_output"] for event in events) == whole["text_output"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"structured_outputs": {"regex": "["}}, "structured_outputs.regex: "),
        ({"guided_decoding": {"regex": "["}}, "guided_decoding: "),
        ({"guided_decoding": {"colour": 1}}, "guided_decoding has no option 'colour'"),
        ({"guided_decoding": "[1]"}, "guided_decoding must be a JSON object"),
        ({"guided_decoding": 7}, "guided_decoding must be an object"),
        (
            {"guided_decoding": {"regex": "a"}, "structured_outputs": {"regex": "a"}},
            "given once under one name",
        ),
    ],
)
def test_a_form_that_cannot_be_followed(
    real_http: httpx.Client, parameters: dict[str, Any], message: str
) -> None:
    body = {"text_input": "abc", "parameters": parameters}
    response = real_http.post("/v2/models/tiny/generate", json=body)
    assert response.status_code == 400
    assert message in response.json()["error"]
