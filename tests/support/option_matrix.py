"""Every pair of options of a request, asked for whole and as a stream: what is equal, and what is refused by name."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from support.streamed_answers import check_equal, without_ids

Json = dict[str, Any]
Cell = tuple[str, str, str]
"""URL and two options."""

PRINTABLE = list(range(4, 98))
EQUAL = "="
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"


@dataclass(frozen=True)
class Option:
    """What asks for it. Some are of the server or of its state, and nothing asks for them."""

    fields: Json = field(default_factory=dict)
    elsewhere: Mapping[str, Json | None] = field(default_factory=dict)
    """By URL, where it is written otherwise; None: there it is not."""

    def of(self, url: str) -> Json | None:
        """What a request has that asks for it; None: such requests cannot."""
        return self.elsewhere.get(url, self.fields)


def _text_only(fields: Json, chat: Json | None = None) -> Option:
    """Of completions and chat only."""
    return Option(fields, {CHAT: chat or fields, RESPONSES: None, MESSAGES: None})


_PARAMETERS: Json = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2]}},
    "required": ["a"],
    "additionalProperties": False,
}
_CALL: Json = {"name": "f", "parameters": _PARAMETERS}
_FREE: Json = {"allowed_token_ids": None}
_ONE_CALL: Json = {"tool_choice": "required", "parallel_tool_calls": False, **_FREE}
_LIST: Json = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 4}
_FORM: Json = {"type": "json_schema", "name": "list", "schema": _LIST}
_TURNS: list[Json] = [
    {"role": "user", "content": "ab ab"},
    {"role": "assistant", "content": "ab"},
]
SPECULATION, PREFIX_CACHE, GOES_ON = "speculation", "prefix cache", "previous_response_id"
OPTIONS: Mapping[str, Option] = {
    "n": _text_only({"n": 2}),
    "best_of": _text_only({"best_of": 3}),
    "stop": Option({"stop": ["e", "Zx"]}, {MESSAGES: {"stop_sequences": [*"abcdefghijklmnopqrstuvwxyz"]}}),
    "greedy": Option({"temperature": 0}, {MESSAGES: {"temperature": 1.0, "top_k": 1}}),
    "penalties": Option({"repetition_penalty": 1.2, "presence_penalty": 0.5}, {MESSAGES: None}),
    "logprobs": Option(
        {"logprobs": 2},
        {
            CHAT: {"logprobs": True, "top_logprobs": 2},
            RESPONSES: {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
            MESSAGES: None,
        },
    ),
    "prompt_logprobs": _text_only({"prompt_logprobs": 1}),
    "echo": _text_only(
        {"echo": True}, chat={"echo": True, "messages": _TURNS, "continue_final_message": True}
    ),
    "continued turn": Option(
        {},
        {
            COMPLETIONS: None,
            CHAT: {"messages": _TURNS, "continue_final_message": True},
            RESPONSES: None,
            MESSAGES: {"messages": _TURNS},
        },
    ),
    GOES_ON: Option({}, {COMPLETIONS: None, CHAT: None, MESSAGES: None}),
    "return_token_ids": _text_only({"return_token_ids": True}),
    "use_beam_search": _text_only({"use_beam_search": True, "n": 2, **_FREE}),
    "grammar": Option(
        {"structured_outputs": {"regex": "[a-f ]{4,12}"}, **_FREE},
        {RESPONSES: {"text": {"format": _FORM}, **_FREE}, MESSAGES: {"output_config": {"format": _FORM}}},
    ),
    "tools": Option(
        {"tools": [{"type": "function", "function": _CALL}], "max_tokens": 96, **_ONE_CALL},
        {
            COMPLETIONS: None,
            RESPONSES: {"tools": [{"type": "function", **_CALL}], "max_output_tokens": 96, **_ONE_CALL},
            MESSAGES: {
                "tools": [{"name": "f", "input_schema": _PARAMETERS}],
                "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
                "max_tokens": 96,
            },
        },
    ),
    SPECULATION: Option(),
    PREFIX_CACHE: Option(),
}  # fmt: skip
"""Speculation is a server that guesses ahead; prefix cache a request whose beginning has been computed before."""

_DRAWN: Json = {"seed": 11, "allowed_token_ids": PRINTABLE}
_ASKS: Mapping[str, Json] = {
    COMPLETIONS: {"prompt": "ab ab ab", "max_tokens": 16, **_DRAWN},
    CHAT: {"messages": [{"role": "user", "content": "ab ab ab"}], "max_tokens": 16, **_DRAWN},
    RESPONSES: {"input": "ab ab ab", "max_output_tokens": 16, **_DRAWN},
    # Anthropic's API has no seed.
    MESSAGES: {
        "messages": [{"role": "user", "content": "ab ab ab"}],
        "model": "tiny",
        "max_tokens": 16,
        "temperature": 0,
    },
}


def cells() -> Iterator[Cell]:
    """All of them: an option with itself is that option alone."""
    for url in _ASKS:
        for pair in itertools.combinations_with_replacement(options_of(url), 2):
            yield url, *pair


def options_of(url: str) -> list[str]:
    """Those that requests to `url` can have."""
    return [name for name, option in OPTIONS.items() if option.of(url) is not None]


def outcome(cell: Cell, plain: httpx.Client, speculating: httpx.Client) -> str:
    """`EQUAL`, or the field that is refused; `whole: FIELD` if only the stream is. Fails if forms differ."""
    url, *pair = cell
    http = speculating if SPECULATION in pair else plain
    body = _body(cell, http)
    if PREFIX_CACHE in pair:
        http.post(url, json=body | {"cache_salt": "warm"})
    salt = "warm" if PREFIX_CACHE in pair else None
    whole = http.post(url, json=body | {"cache_salt": salt or "-".join([*cell, "whole"])})
    usage = {"stream_options": {"include_usage": True}} if url in (COMPLETIONS, CHAT) else {}
    streams = body | {"stream": True, "cache_salt": salt or "-".join([*cell, "stream"])} | usage
    stream = http.post(url, json=streams)
    if whole.status_code != 200:
        assert whole.status_code == stream.status_code == 400, (whole.text, stream.text)
        name = _refused(whole)
        assert _refused(stream) in (name, "stream", *_fields(url, pair)), stream.text
        return name
    if stream.status_code != 200:
        assert stream.status_code == 400, stream.text
        return f"whole: {_refused(stream)}"
    check_equal(whole.json(), stream)
    if SPECULATION in pair:
        asked = _body(cell, plain) | {"cache_salt": "-".join([*cell, "unguessed"])}
        unguessed = plain.post(url, json=asked)
        assert without_ids(unguessed.json()) == without_ids(whole.json())
    return EQUAL


def page(outcomes: Mapping[Cell, str]) -> str:
    """The documentation's page."""
    lines = [
        "# Options together\n",
        "<!-- Written by `make docs-options` from tests/support/option_matrix.py; tests/system/test_option_matrix.py compares. -->\n",
        f"Each pair is asked for whole and as a stream: `{EQUAL}` says that texts, calls, token ids, log-probabilities, finish "
        "reasons and usage are the same, and with *speculation* also the same as without. A name is the field that is "
        "refused with 400; after *whole* it is refused with `stream` only.\n",
    ]
    for url in _ASKS:
        names = options_of(url)
        lines += [
            f"## POST {url}\n",
            f"| | {' | '.join(names)} |",
            "| --- " * (len(names) + 1) + "|",
        ]
        for first in names:
            row = [
                outcomes.get((url, first, second)) or outcomes[url, second, first]
                for second in names
            ]
            lines.append(f"| {first} | {' | '.join(row)} |")
        lines.append("")
    return "\n".join(lines)


def _fields(url: str, pair: list[str]) -> set[str]:
    return {name for option in pair for name in OPTIONS[option].of(url) or {}}


def _body(cell: Cell, http: httpx.Client) -> Json:
    url, *pair = cell
    body = _ASKS[url]
    for option in pair:
        body = body | (OPTIONS[option].of(url) or {})
    if GOES_ON in pair:
        first = http.post(url, json={**_ASKS[url], "cache_salt": "first"}).json()
        body = body | {"previous_response_id": first["id"]}
    return body


def _refused(response: httpx.Response) -> str:
    """The field that an error is about; where errors have no place for it, it is the first word of the message."""
    error = response.json()["error"]
    name = error["param"] if "param" in error else error["message"].partition(" ")[0]
    assert name, error
    return str(name).rstrip(":")
