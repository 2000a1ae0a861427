"""Faults of turning tokens into text that users of other engines met (known failures, section D)."""

import json

import httpx
import pytest

from support.answers import CHAT, COMPLETIONS, chat, complete, script
from support.sse import read_stream

CHARACTERS = {
    "CJK": "世界您好",
    "emoji": "🎉🚀",
    "family": "👨‍👩‍👧‍👦",
    "flags": "🇫🇷🇯🇵",
    "combining": "e\u0301o\u0308a\u0323\u0302",
    "Korean": "한국어 각",
    "Arabic": "السلام",
    "Devanagari": "नमस्ते",
    "mixed": "a世b🎉c\u0301d",
}


def bytes_of(text: bytes) -> list[int]:
    """Token ids that spell bytes, which need not be UTF-8. Only printable bytes of the byte-level alphabet."""
    alphabet = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in alphabet]
    order = alphabet + others
    return [4 + order.index(byte) for byte in text]


def says(text: bytes) -> list[int]:
    """A prompt that makes the scripted engine say these bytes, slowly. It ends with a whole character."""
    return [1, 0, *bytes_of(b"\x04" + text), 0, *bytes_of(b".")]


@pytest.mark.parametrize("name", CHARACTERS)
@pytest.mark.parametrize("order", ["", "\x04"])
def test_r31_characters_split_over_tokens(
    scripted_http: httpx.Client, name: str, order: str
) -> None:
    text = CHARACTERS[name]
    for answer in (
        complete(scripted_http, script(order + text), max_tokens=100),
        chat(scripted_http, script(order + text)),
    ):
        assert answer.text == text


@pytest.mark.parametrize("name", CHARACTERS)
def test_r31_no_part_of_a_stream_is_a_broken_character(
    scripted_http: httpx.Client, name: str
) -> None:
    body = {"prompt": script("\x04" + CHARACTERS[name]), "max_tokens": 100, "stream": True}
    stream = read_stream(scripted_http.post(COMPLETIONS, json=body))
    assert len(stream.choices()) > 1
    assert all("\ufffd" not in choice["text"] for choice in stream.choices())


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("世".encode()[:2], "\ufffd"),  # cut at the end: one U+FFFD
        (b"a" + "🎉".encode()[:3], "a\ufffd"),
        ("世".encode()[1:], "\ufffd\ufffd"),  # lone continuation bytes: one each
        (b"\x80", "\ufffd"),
        (b"a\xffb", "a\ufffdb"),
        ("世".encode()[:2] + b"b", "\ufffdb"),
    ],
)
def test_r31_bytes_that_are_no_characters(
    scripted_http: httpx.Client, raw: bytes, text: str
) -> None:
    assert complete(scripted_http, says(raw)).text == text
    # The same when the end is the length, not the end token.
    assert complete(scripted_http, says(raw), max_tokens=len(raw)).text == text


def test_r31_bytes_of_logprobs_are_the_raw_bytes(scripted_http: httpx.Client) -> None:
    raw = "né世🎉".encode()
    body = {
        "messages": [{"role": "user", "content": script(raw.decode())}],
        "logprobs": True,
        "max_tokens": len(raw),
    }
    content = scripted_http.post(CHAT, json=body).json()["choices"][0]["logprobs"]["content"]
    assert bytes(byte for entry in content for byte in entry["bytes"]) == raw
    stream = read_stream(scripted_http.post(CHAT, json={**body, "stream": True}))
    parts = [choice["logprobs"] or {"content": []} for choice in stream.choices()]
    streamed = [byte for part in parts for entry in part["content"] for byte in entry["bytes"]]
    assert bytes(streamed) == raw


@pytest.mark.parametrize("skips", [True, False])
@pytest.mark.parametrize("includes", [True, False])
def test_r35_a_stop_string_that_is_a_special_token(
    scripted_http: httpx.Client, skips: bool, includes: bool
) -> None:
    answer = complete(
        scripted_http,
        script("one two<|turn|> three"),
        stop=["<|turn|>"],
        skip_special_tokens=skips,
        include_stop_str_in_output=includes,
    )
    shown = "<|turn|>" if includes and not skips else ""
    assert answer.text == f"one two{shown}"
    assert (answer.finish_reason, answer.stop_reason) == ("stop", "<|turn|>")
    assert answer.num_tokens == len("one two") + 1


def test_r35_the_same_by_token_id(scripted_http: httpx.Client) -> None:
    answer = complete(scripted_http, script("one two<|turn|> three"), stop_token_ids=[3])
    assert (answer.text, answer.finish_reason, answer.stop_reason) == ("one two", "stop", 3)


def test_a_stream_is_utf8_json_whatever_is_said(scripted_http: httpx.Client) -> None:
    text = '"\\\n\r\t\x00\u2028</script>\x7f'
    answer = complete(scripted_http, script("a" + text))
    assert answer.text == "a" + text
    body = {"prompt": script("a" + text), "stream": True}
    for line in scripted_http.post(COMPLETIONS, json=body).content.decode("utf-8").split("\n"):
        assert line in ("", "data: [DONE]") or json.loads(line.removeprefix("data: "))
