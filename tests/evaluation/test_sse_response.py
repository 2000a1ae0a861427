import pytest

from octavo.evaluation.sse_response import SseResponse

EVENTS = [b'{"a": 1}', b"{}", b"[DONE]"]
BODY = b": a comment\n\n" + b"".join(b"data: " + event + b"\n\n" for event in EVENTS)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    chunks = b"".join(b"%x;x=y\r\n%s\r\n" % (len(part), part) for part in parts)
    return HEAD + b"Transfer-Encoding: Chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


SIZED = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY


@pytest.mark.parametrize("data", [chunked(BODY, 7), chunked(BODY, 1000), SIZED])
@pytest.mark.parametrize("piece", [1, 2, 3, 10, 10_000])
def test_events_come_whole_however_the_bytes_are_cut(data: bytes, piece: int) -> None:
    response = SseResponse()
    found = []
    for i in range(0, len(data), piece):
        assert not response.is_complete
        found += response.feed(data[i : i + piece])
    assert found == EVENTS
    assert response.is_complete


def test_lines_may_end_as_on_windows() -> None:
    response = SseResponse()
    assert response.feed(HEAD + b"\r\n" + BODY.replace(b"\n", b"\r\n")) == EVENTS
    assert not response.is_complete
    response.end()
    assert response.is_complete


def test_a_cut_stream_is_not_complete() -> None:
    for data in (chunked(BODY, 7)[:-1], SIZED[:-1]):
        response = SseResponse()
        response.feed(data)
        response.end()
        assert not response.is_complete


def test_an_error_keeps_its_body() -> None:
    response = SseResponse()
    assert response.feed(b"HTTP/1.1 503 x\r\nContent-Length: 12\r\n\r\ndata: later\n") == []
    assert (response.status, response.error_text()) == (503, "data: later")
    assert response.is_complete


@pytest.mark.parametrize(
    "data", [b"SSH-2.0-x\r\n\r\n", HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"]
)
def test_what_is_not_http_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not "):
        SseResponse().feed(data)
