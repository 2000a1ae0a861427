"""POST /v1/completions, whole and streamed."""

from typing import Any

import httpx
import pytest

from support.sse import Stream, read_stream

URL = "/v1/completions"


def script(text: str) -> str:
    return f"<unk>{text}<unk>"


def whole(http: httpx.Client, **body: Any) -> dict[str, Any]:
    response = http.post(URL, json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def streamed(http: httpx.Client, **body: Any) -> Stream:
    return read_stream(http.post(URL, json={**body, "stream": True}))


def test_the_shape_of_an_answer(http: httpx.Client) -> None:
    answer = whole(http, model="tiny", prompt=script("Hello"), max_tokens=10)
    assert answer["id"].startswith("cmpl-")
    assert answer["object"] == "text_completion"
    assert answer["model"] == "tiny"
    assert isinstance(answer["created"], int)
    assert answer["system_fingerprint"].startswith("fp_")
    assert answer["choices"] == [
        {
            "index": 0,
            "text": "Hello",
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ]
    usage = answer["usage"]
    cached = usage.pop(
        "prompt_tokens_details"
    )  # what earlier tests have left, as all prompts begin alike
    assert usage == {"prompt_tokens": 8, "completion_tokens": 6, "total_tokens": 14}
    assert cached.keys() == {"cached_tokens"} and 0 <= cached["cached_tokens"] < 8


def test_the_shape_of_a_stream(http: httpx.Client) -> None:
    stream = streamed(http, prompt=script("Hello"), max_tokens=10)
    assert stream.texts == {0: "Hello"}
    assert stream.finish_reasons == {0: ["stop"]}
    assert stream.usage is None
    for chunk in stream.chunks:
        assert chunk["object"] == "text_completion"
        assert chunk["id"] == stream.chunks[0]["id"]
        assert set(chunk) == {"id", "object", "created", "model", "system_fingerprint", "choices"}
        assert set(chunk["choices"][0]) == {
            "index",
            "text",
            "logprobs",
            "finish_reason",
            "stop_reason",
        }


def test_sixteen_tokens_by_default(http: httpx.Client) -> None:
    for body in ({}, {"max_tokens": None}):
        answer = whole(http, prompt=script("x" * 40), **body)
        assert answer["choices"][0]["text"] == "x" * 16
        assert answer["choices"][0]["finish_reason"] == "length"


def test_the_default_is_cut_at_the_context(http: httpx.Client) -> None:
    prompt = script("y" * 40) + "z" * (1024 - 5 - 43)
    answer = whole(http, prompt=prompt)
    assert answer["usage"]["prompt_tokens"] == 1019
    assert answer["choices"][0]["text"] == "yyyyy"
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("streams", [False, True])
def test_a_list_of_prompts_in_order(http: httpx.Client, streams: bool) -> None:
    words = ["one", "two, which is longer", "three"]
    body = {"prompt": [script(word) for word in words], "max_tokens": 30}
    if streams:
        stream = streamed(http, **body, stream_options={"include_usage": True})
        assert stream.texts == dict(enumerate(words))
        assert stream.finish_reasons == {i: ["stop"] for i in range(3)}
        usage = stream.usage
    else:
        answer = whole(http, **body)
        assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
        assert [choice["text"] for choice in answer["choices"]] == words
        usage = answer["usage"]
    assert usage is not None
    assert usage["prompt_tokens"] == sum(len(word) + 3 for word in words)
    assert usage["completion_tokens"] == sum(len(word) + 1 for word in words)


def test_token_ids_are_the_same_prompt_as_their_text(http: httpx.Client) -> None:
    text = "what comes next"
    ids = http.post("/tokenize", json={"prompt": text}).json()["tokens"]
    body: dict[str, Any] = {"seed": 1, "max_tokens": 12}
    by_text = whole(http, prompt=text, **body)
    assert whole(http, prompt=ids, **body)["choices"] == by_text["choices"]
    both = whole(http, prompt=[ids, ids], **body)["choices"]
    assert [c["text"] for c in both] == [by_text["choices"][0]["text"]] * 2


def test_special_tokens_before_the_prompt_can_be_left_out(http: httpx.Client) -> None:
    answer = whole(http, prompt="abc", add_special_tokens=False, max_tokens=1)
    assert answer["usage"]["prompt_tokens"] == 3


def test_choices_count_prompt_by_prompt(http: httpx.Client) -> None:
    prompts = ["first", "second", "third"]
    body: dict[str, Any] = {"n": 3, "seed": 5, "temperature": 1, "max_tokens": 20}
    answer = whole(http, prompt=prompts, **body)
    assert [choice["index"] for choice in answer["choices"]] == list(range(9))
    texts = [choice["text"] for choice in answer["choices"]]
    for i, prompt in enumerate(prompts):
        alone = whole(http, prompt=prompt, **body)
        assert [c["text"] for c in alone["choices"]] == texts[3 * i : 3 * i + 3]
    stream = streamed(http, prompt=prompts, **body)
    assert [stream.texts[i] for i in range(9)] == texts
    assert all(len(reasons) == 1 for reasons in stream.finish_reasons.values())


def test_the_prompt_counts_once_for_n_choices(http: httpx.Client) -> None:
    usage = whole(http, prompt="abc", n=4, seed=1, max_tokens=5, ignore_eos=True)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (4, 20)


def test_echo(http: httpx.Client) -> None:
    body: dict[str, Any] = {"prompt": script("!"), "echo": True}
    assert whole(http, **body)["choices"][0]["text"] == script("!") + "!"
    assert streamed(http, **body).texts == {0: script("!") + "!"}
    ids = http.post("/tokenize", json={"prompt": script("!")}).json()["tokens"]
    assert whole(http, prompt=ids, echo=True)["choices"][0]["text"] == "!!"
    shown = whole(http, prompt=ids, echo=True, skip_special_tokens=False)["choices"][0]["text"]
    assert shown == f"<bos>{script('!')}!"


def test_echo_alone(http: httpx.Client) -> None:
    body: dict[str, Any] = {"prompt": "abc", "echo": True, "max_tokens": 0, "logprobs": 1}
    answer = whole(http, **body)
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("abc", "length")
    assert choice["logprobs"]["tokens"] == ["<bos>", "a", "b", "c"]
    assert answer["usage"]["completion_tokens"] == 0
    stream = streamed(http, **body)
    assert stream.texts == {0: "abc"}
    assert stream.choices()[0]["logprobs"] == choice["logprobs"]


def joined_logprobs(stream: Stream, index: int = 0) -> dict[str, list[Any]]:
    joined: dict[str, list[Any]] = {}
    for choice in stream.choices(index):
        for name, values in choice["logprobs"].items():
            joined.setdefault(name, []).extend(values)
    return joined


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("logprobs", [0, 1])
def test_logprobs_of_a_stream_are_those_of_the_whole(
    http: httpx.Client, echo: bool, logprobs: int
) -> None:
    text = "naïve 世"
    body: dict[str, Any] = {"prompt": script(text), "logprobs": logprobs, "echo": echo}
    choice = whole(http, **body)["choices"][0]
    found = choice["logprobs"]
    assert set(found) == {"text_offset", "token_logprobs", "tokens", "top_logprobs"}
    num_prompt = 3 + len(text.encode()) if echo else 0
    assert {len(values) for values in found.values()} == {num_prompt + len(text.encode()) + 1}
    assert joined_logprobs(streamed(http, **body)) == found
    if echo:
        assert found["token_logprobs"][0] is None
        assert found["top_logprobs"][0] is None
    assert all(value <= 0 for value in found["token_logprobs"][int(echo) :])
    for token, logprob, top in list(
        zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True)
    )[int(echo) :]:
        assert top[token] == logprob


def test_text_offsets_point_into_the_text(http: httpx.Client) -> None:
    body: dict[str, Any] = {"prompt": script("aé世b"), "logprobs": 0}
    found = whole(http, **body)["choices"][0]["logprobs"]
    # Bytes of one character share its offset; the end token stands behind the text.
    assert found["text_offset"] == [0, 1, 1, 2, 2, 2, 3, 4]


def test_tokens_can_be_named_by_id(http: httpx.Client) -> None:
    body: dict[str, Any] = {
        "prompt": script("a"),
        "logprobs": 1,
        "return_tokens_as_token_ids": True,
    }
    found = whole(http, **body)["choices"][0]["logprobs"]
    assert found["tokens"] == ["token_id:68", "token_id:2"]
    assert set(found["top_logprobs"][0]) == {"token_id:68"}
    assert found["text_offset"] == [0, 1]


def test_prompt_logprobs(http: httpx.Client) -> None:
    choice = whole(http, prompt="ab", prompt_logprobs=1, max_tokens=1)["choices"][0]
    first, *others = choice["prompt_logprobs"]
    assert first is None
    assert [list(entry) for entry in others] == [["68"], ["69"]]
    assert others[0]["68"]["decoded_token"] == "a"
    assert others[0]["68"]["rank"] == 1
    assert others[0]["68"]["logprob"] < 0


def test_token_ids_can_be_returned(http: httpx.Client) -> None:
    body: dict[str, Any] = {"prompt": [script("hi"), script("you")], "return_token_ids": True}
    answer = whole(http, **body)
    assert answer["choices"][0]["token_ids"] == [75, 76, 2]
    assert answer["choices"][0]["prompt_token_ids"] == [1, 0, 75, 76, 0]
    stream = streamed(http, **body)
    for index in (0, 1):
        parts = stream.choices(index)
        ids = [token_id for part in parts for token_id in part["token_ids"]]
        assert ids == answer["choices"][index]["token_ids"]
        assert parts[0]["prompt_token_ids"] == answer["choices"][index]["prompt_token_ids"]
        assert all("prompt_token_ids" not in part for part in parts[1:])


def test_usage_in_streams(http: httpx.Client) -> None:
    body: dict[str, Any] = {"prompt": script("abc")}
    whole(http, **body)  # from here on its tokens are in the prefix cache
    expected = whole(http, **body)["usage"]
    assert streamed(http, **body, stream_options={"include_usage": True}).usage == expected
    assert streamed(http, **body, stream_options={}).usage == expected
    assert streamed(http, **body, stream_options={"include_usage": False}).usage is None
    options = {"include_usage": True, "continuous_usage_stats": True}
    stream = streamed(http, **body, stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in stream.chunks]
    assert counts == sorted(counts) and counts[-1] == expected["completion_tokens"]
    assert all(chunk["usage"]["prompt_tokens"] == 6 for chunk in stream.chunks)


def test_a_stop_string_ends_the_choice_and_frees_its_pages(http: httpx.Client) -> None:
    # A script without end: only the stop string can end it before the context does.
    body: dict[str, Any] = {"prompt": script("\x05abcd "), "stop": ["d a"], "max_tokens": 900}
    answer = whole(http, **body)
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (
        "abc",
        "stop",
        "d a",
    )
    assert answer["usage"]["completion_tokens"] == 6
    stream = streamed(http, **body)
    assert (stream.texts, stream.finish_reasons) == ({0: "abc"}, {0: ["stop"]})
    # The fixture `http` waits for idle pages.


def test_several_prompts_with_one_that_fails(http: httpx.Client) -> None:
    # Accepted by all checks; the row has no answer after three tokens.
    prompts = [script("fine"), script("\x01bad"), script("good")]
    response = http.post(URL, json={"prompt": prompts})
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "InternalServerError"
    assert "not finite" in response.json()["error"]["message"]
