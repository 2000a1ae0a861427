"""Streams whose events have names: those of the Messages and of the Responses API."""

import json
from typing import Any

import httpx


def read_named_events(response: httpx.Response) -> list[dict[str, Any]]:
    """The events of a complete stream. Each has its name in the line before, and again as its type."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.endswith("\n\n"), f"the stream is cut: {response.text[-200:]!r}"
    events = []
    for frame in response.text.removesuffix("\n\n").split("\n\n"):
        name, _, data = frame.partition("\n")
        assert name.startswith("event: ") and data.startswith("data: ") and "\n" not in data, frame
        event = json.loads(data.removeprefix("data: "))
        assert event["type"] == name.removeprefix("event: ")
        events.append(event)
    return events
