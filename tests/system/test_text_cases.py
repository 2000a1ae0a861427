"""Faults of turning tokens into text, and text into tokens, that users of other engines met (known failures, section D and
R55)."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support.answers import CHAT, COMPLETIONS, chat, complete, script
from support.scripted_engine import MODULE as SCRIPTED
from support.server_process import running_server, tiny_config
from support.sse import read_stream
from support.text_model import BOS, write_text_model

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


@pytest.mark.parametrize(
    "text",
    [
        "a    b",
        "   three before",
        " x",
        "\ttabs\t\t",
        "\n\n\nlines\n",
        "     ",
        "trailing ",
        "def f():\n        return 1\n        # done\n",
        "a<|turn|> b<|turn|>  c",
        "I see  Paris   Paris",
    ],
)
@pytest.mark.parametrize("before", ["", "a prompt", "a prompt that ends in spaces  "])
def test_r33_no_space_is_swallowed(scripted_http: httpx.Client, text: str, before: str) -> None:
    said = text.replace("<|turn|>", "")
    answer = complete(scripted_http, before + script(text), return_token_ids=True)
    assert answer.text == said
    assert chat(scripted_http, before + script(text)).text == said
    echoed = complete(scripted_http, before + script("x"), echo=True)
    assert echoed.text == f"{before}{script('x')}x"


@pytest.fixture(scope="module", params=[True, False], ids=["adds BOS", "adds none"])
def adds_bos(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module", params=[True, False], ids=["prints BOS", "prints none"])
def prints_bos(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def bos_http(
    adds_bos: bool, prints_bos: bool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """A client of a server whose tokenizer adds BOS or not, and whose chat template prints it or not."""
    folder = tmp_path_factory.mktemp("bos") / "tiny"
    write_text_model(folder)
    path = folder / "tokenizer_config.json"
    settings = {**json.loads(path.read_text()), "add_bos_token": adds_bos}
    if not prints_bos:
        settings["chat_template"] = settings["chat_template"].replace("{{ bos_token }}", "")
    path.write_text(json.dumps(settings))
    with (
        running_server(tiny_config(folder), engine_module=SCRIPTED) as server,
        httpx.Client(base_url=server.url, timeout=30) as client,
    ):
        yield client


def test_r55_bos_stands_once_where_it_belongs(
    bos_http: httpx.Client, adds_bos: bool, prints_bos: bool
) -> None:
    def sent(path: str, **body: Any) -> list[int]:
        """The ids that the engine was given."""
        options = {"max_tokens": 1, "return_token_ids": True}
        answer = bos_http.post(path, json={**options, **body}).json()
        found = answer.get("prompt_token_ids") or answer["choices"][0]["prompt_token_ids"]
        return [int(token_id) for token_id in found]

    hello = [BOS] * adds_bos + bytes_of(b"Hello")
    messages = [{"role": "user", "content": "Hello"}]
    assert sent(COMPLETIONS, prompt="Hello") == hello
    assert sent(COMPLETIONS, prompt="Hello", add_special_tokens=False) == bytes_of(b"Hello")
    assert sent(COMPLETIONS, prompt="<bos>Hello") == [BOS, *bytes_of(b"Hello")]
    for ids in ([70, 71], [BOS, 70, 71], [BOS, BOS, 70]):
        assert sent(COMPLETIONS, prompt=ids) == ids  # as they are
    in_chat = sent(CHAT, messages=messages)
    assert in_chat.count(BOS) == prints_bos
    assert sent(CHAT, messages=messages, add_special_tokens=True).count(BOS) == (
        adds_bos or prints_bos
    )
    listed = bos_http.post("/tokenize", json={"messages": messages}).json()["tokens"]
    assert listed == in_chat
    text = bos_http.post("/detokenize", json={"tokens": in_chat}).json()["prompt"]
    again = sent(COMPLETIONS, prompt=text)  # a chat that the client has rendered
    assert again == [BOS] * (adds_bos and not prints_bos) + in_chat


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
