"""Reads streams as strictly as the format is written down."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass
class Stream:
    """A whole stream, taken apart."""

    chunks: list[dict[str, Any]]
    """Every event but `[DONE]`."""
    texts: dict[int, str] = field(default_factory=dict)
    finish_reasons: dict[int, list[str]] = field(default_factory=dict)
    """By choice; one each, if all is well."""

    @property
    def errors(self) -> list[dict[str, Any]]:
        """Error objects among the events."""
        return [chunk["error"] for chunk in self.chunks if "error" in chunk]

    @property
    def usage(self) -> dict[str, Any] | None:
        """The usage of the chunk without choices."""
        found = [chunk["usage"] for chunk in self.chunks if chunk.get("choices") == []]
        assert len(found) <= 1
        return found[0] if found else None

    def choices(self, index: int = 0) -> list[dict[str, Any]]:
        """The parts of one choice."""
        parts = (choice for chunk in self.chunks for choice in chunk.get("choices", []))
        return [choice for choice in parts if choice["index"] == index]


def parse_events(text: str) -> list[dict[str, Any]]:
    """The events of a complete stream: each one data line and an empty line, `[DONE]` last and only once."""
    assert text.endswith("\n\n"), f"the stream is cut: {text[-200:]!r}"
    events = text.removesuffix("\n\n").split("\n\n")
    for event in events:
        assert event.startswith("data: ") and "\n" not in event, repr(event)
    data = [event.removeprefix("data: ") for event in events]
    assert data[-1] == "[DONE]"
    assert data.count("[DONE]") == 1
    return [json.loads(line) for line in data[:-1]]


def read_stream(response: httpx.Response) -> Stream:
    """Take a streamed response apart, of either endpoint."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return assemble(parse_events(response.text))


def assemble(chunks: Iterable[dict[str, Any]]) -> Stream:
    """Join the texts of each choice."""
    stream = Stream(list(chunks))
    for chunk in stream.chunks:
        for choice in chunk.get("choices", []):
            index = choice["index"]
            text = choice["delta"].get("content", "") if "delta" in choice else choice["text"]
            assert index not in stream.finish_reasons, "a part after the last"
            stream.texts[index] = stream.texts.get(index, "") + text
            if choice["finish_reason"] is not None:
                stream.finish_reasons.setdefault(index, []).append(choice["finish_reason"])
    return stream
