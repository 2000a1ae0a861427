"""Every pair of options of a request, asked for whole and as a stream: what is equal, and what is refused by name."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from support.sse import read_stream

Json = dict[str, Any]
Cell = tuple[str, str, str]
"""URL and two options."""

PRINTABLE = list(range(4, 98))
EQUAL = "="
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


@dataclass(frozen=True)
class Option:
    """What asks for it, of completions and of chat. Some are of the server or of its state."""

    completion: Json | None = field(default_factory=dict)
    """None: completions do not have it."""
    chat: Json | None = None
    """If it differs."""

    def fields(self, url: str) -> Json:
        """What a request has that asks for it."""
        return (self.chat if url == CHAT and self.chat is not None else self.completion) or {}


_CALL: Json = {
    "name": "f",
    "parameters": {
        "type": "object",
        "properties": {"a": {"enum": [1, 2]}},
        "required": ["a"],
        "additionalProperties": False,
    },
}
SPECULATION, PREFIX_CACHE = "speculation", "prefix cache"
OPTIONS: Mapping[str, Option] = {
    "n": Option({"n": 2}),
    "best_of": Option({"best_of": 3}),
    "stop": Option({"stop": ["e", "Zx"]}),
    "greedy": Option({"temperature": 0}),
    "penalties": Option({"repetition_penalty": 1.2, "presence_penalty": 0.5}),
    "logprobs": Option({"logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
    "prompt_logprobs": Option({"prompt_logprobs": 1}),
    "echo": Option(
        {"echo": True},
        {
            "echo": True,
            "messages": [
                {"role": "user", "content": "ab ab"},
                {"role": "assistant", "content": "ab"},
            ],
            "continue_final_message": True,
        },
    ),
    "return_token_ids": Option({"return_token_ids": True}),
    "use_beam_search": Option({"use_beam_search": True, "n": 2, "allowed_token_ids": None}),
    "grammar": Option({"structured_outputs": {"regex": "[a-f ]{4,12}"}, "allowed_token_ids": None}),
    "tools": Option(
        None,
        {
            "tools": [{"type": "function", "function": _CALL}],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "max_tokens": 96,
            "allowed_token_ids": None,
        },
    ),
    SPECULATION: Option(),
    PREFIX_CACHE: Option(),
}
"""Speculation is a server that guesses ahead; prefix cache a request whose beginning has been computed before."""

_COMMON: Json = {"max_tokens": 16, "seed": 11, "allowed_token_ids": PRINTABLE}


def cells() -> Iterator[Cell]:
    """All of them: an option with itself is that option alone."""
    for url in (COMPLETIONS, CHAT):
        for pair in itertools.combinations_with_replacement(options_of(url), 2):
            yield url, *pair


def options_of(url: str) -> list[str]:
    """Those that requests to `url` can have."""
    return [name for name, o in OPTIONS.items() if url == CHAT or o.completion is not None]


def outcome(cell: Cell, plain: httpx.Client, speculating: httpx.Client) -> str:
    """`EQUAL`, or the field that is refused; `whole: FIELD` if only the stream is. Fails if forms differ."""
    url, *pair = cell
    http = speculating if SPECULATION in pair else plain
    body = _body(url, pair)
    if PREFIX_CACHE in pair:
        http.post(url, json=body | {"cache_salt": "warm"})
    salt = "warm" if PREFIX_CACHE in pair else None
    whole = http.post(url, json=body | {"cache_salt": salt or "-".join([*cell, "whole"])})
    options = {"stream": True, "stream_options": {"include_usage": True}}
    stream = http.post(
        url, json=body | options | {"cache_salt": salt or "-".join([*cell, "stream"])}
    )
    if whole.status_code != 200:
        assert whole.status_code == stream.status_code == 400, (whole.text, stream.text)
        name = _refused(whole)
        assert _refused(stream) in (name, "stream", *_fields(url, pair)), stream.text
        return name
    if stream.status_code != 200:
        assert stream.status_code == 400, stream.text
        return f"whole: {_refused(stream)}"
    _check_equal(whole.json(), stream)
    if SPECULATION in pair:
        unguessed = plain.post(url, json=body | {"cache_salt": "-".join([*cell, "unguessed"])})
        assert _without_ids(unguessed.json()) == _without_ids(whole.json())
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
    for url in (COMPLETIONS, CHAT):
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
    return {name for option in pair for name in OPTIONS[option].fields(url)}


def _body(url: str, pair: list[str]) -> Json:
    asks: Json = {"prompt": "ab ab ab"}
    if url == CHAT:
        asks = {"messages": [{"role": "user", "content": "ab ab ab"}]}
    body = _COMMON | asks
    for option in pair:
        body = body | OPTIONS[option].fields(url)
    return body


def _refused(response: httpx.Response) -> str:
    error = response.json()["error"]
    assert error["param"], error
    return str(error["param"])


def _check_equal(whole: Json, response: httpx.Response) -> None:
    stream = read_stream(response)
    for choice in whole["choices"]:
        index = choice["index"]
        text = choice["text"] if "text" in choice else choice["message"]["content"] or ""
        parts = stream.choices(index)
        assert stream.texts[index] == text
        assert _streamed_calls(parts) == _calls(choice)
        assert stream.finish_reasons[index] == [choice["finish_reason"]]
        assert parts[-1].get("stop_reason") == choice["stop_reason"]
        assert _joined(part.get("token_ids") for part in parts) == (choice.get("token_ids") or [])
        logprobs = choice["logprobs"] or {}
        for name, values in logprobs.items():
            assert _joined((part["logprobs"] or {}).get(name) for part in parts) == values
    assert stream.usage is not None
    cached = {"prompt_tokens_details": None}  # an earlier request may have left more
    assert stream.usage | cached == whole["usage"] | cached


def _calls(choice: Json) -> list[list[str]]:
    """Names and arguments."""
    functions = [call["function"] for call in choice.get("message", {}).get("tool_calls") or ()]
    return [[function["name"], function["arguments"]] for function in functions]


def _streamed_calls(parts: list[Json]) -> list[list[str]]:
    calls: list[list[str]] = []
    for part in parts:
        for piece in part.get("delta", {}).get("tool_calls") or ():
            if piece["index"] == len(calls):
                calls.append([piece["function"]["name"], ""])
            calls[piece["index"]][1] += piece["function"]["arguments"]
    return calls


def _without_ids(answer: Json) -> list[Json]:
    """The choices; ids of calls are random."""
    choices: list[Json] = answer["choices"]
    for choice in choices:
        for call in choice.get("message", {}).get("tool_calls") or ():
            del call["id"]
    return choices


def _joined(lists: Iterator[list[Any] | None]) -> list[Any]:
    return [value for values in lists for value in values or ()]
