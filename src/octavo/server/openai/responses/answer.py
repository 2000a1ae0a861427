"""The answer of /v1/responses, whole or as a stream of events."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import msgspec

from octavo.errors import OctavoError
from octavo.server.generation import ChoiceText, Output
from octavo.server.http_errors import error_object, message_of
from octavo.server.openai.exchange import Exchange, now
from octavo.server.openai.logprobs import chat_logprobs
from octavo.server.openai.responses.request import ResponsesRequest
from octavo.server.openai.usage import Usage

_TAKEN_OVER = (
    "instructions", "metadata", "max_output_tokens", "previous_response_id", "top_logprobs", "user",
    "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
)  # fmt: skip
"""Fields of the request that the response repeats."""


class ResponsesAnswer:
    """Turns outputs into the output items of a response: one message of text.

    `keep` is called with the finished response, once, before its last byte is sent.
    """

    def __init__(
        self,
        exchange: Exchange,
        body: ResponsesRequest,
        keep: Callable[[dict[str, Any], str], None],
    ) -> None:
        self._exchange = exchange
        self._body = body
        self._keep = keep
        self._usage = Usage(exchange.request)
        self._item_id = exchange.response_id.replace("resp", "msg", 1)
        self._wants_logprobs = bool(getattr(exchange.body, "logprobs", None))
        self._texts: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        self._last: ChoiceText | None = None
        self._num_events = 0

    async def whole(self) -> bytes:
        """The JSON body."""
        async with contextlib.aclosing(self._exchange.outputs()) as outputs:
            async for output in outputs:
                self._usage.count(output)
                if isinstance(output, ChoiceText):
                    self._take(output)
        return msgspec.json.encode(self._finish())

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The events, from `response.created` to `response.completed`, `response.incomplete` or `response.failed`.

        Raises what happens before the first of them.
        """
        try:
            async with contextlib.aclosing(self._exchange.outputs()) as outputs:
                async for output in outputs:
                    for frame in self._frames_of(output):
                        yield frame
        except OctavoError as error:
            if not self._num_events:
                raise
            for frame in self._failed(error):
                yield frame
        else:
            for frame in self._last_frames():
                yield frame

    def _frames_of(self, output: Output) -> Iterator[bytes]:
        if not self._num_events:
            yield from self._first_frames()
        self._usage.count(output)
        if isinstance(output, ChoiceText):
            logprobs = self._take(output)
            if output.text or logprobs:
                yield self._part_event(
                    "output_text.delta", delta=output.text, logprobs=_in_events(logprobs)
                )

    def _take(self, output: ChoiceText) -> list[dict[str, Any]]:
        """Keep what an output adds. Returns its log-probabilities."""
        self._last = output
        self._texts.append(output.text)
        if not self._wants_logprobs:
            return []
        logprobs: list[dict[str, Any]] = chat_logprobs(output.logprobs or [], self._exchange.names)[
            "content"
        ]
        self._logprobs += logprobs
        return logprobs

    def _first_frames(self) -> list[bytes]:
        response = self._response("in_progress")
        item = self._item("in_progress", [])
        return [
            self._event("created", response=response),
            self._event("in_progress", response=response),
            self._event("output_item.added", output_index=0, item=item),
            self._part_event("content_part.added", part=self._part(is_done=False)),
        ]

    def _last_frames(self) -> list[bytes]:
        text = "".join(self._texts)
        response = self._finish()
        return [
            self._part_event("output_text.done", text=text, logprobs=_in_events(self._logprobs)),
            self._part_event("content_part.done", part=self._part(is_done=True)),
            self._event("output_item.done", output_index=0, item=response["output"][0]),
            self._event(response["status"], response=response),
        ]

    def _failed(self, error: OctavoError) -> list[bytes]:
        response = self._response("failed")
        response["error"] = {"code": "server_error", "message": message_of(error)}
        told = error_object(error)["error"]
        data = {"code": str(told["code"]), "message": told["message"], "param": told["param"]}
        return [self._frame("error", data), self._event("failed", response=response)]

    def _finish(self) -> dict[str, Any]:
        """The whole response, which is kept if the client wants that."""
        reason = self._last.finish_reason if self._last else None
        status = "incomplete" if reason in ("length", "abort") else "completed"
        response = self._response(status)
        if status == "incomplete":
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            response["completed_at"] = now()
        response["output"] = [self._item(status, [self._part(is_done=True)])]
        response["usage"] = self._counts()
        self._keep(response, "".join(self._texts))
        return response

    def _response(self, status: str) -> dict[str, Any]:
        """The response as far as it is known before anything is said."""
        body, params = self._body, self._exchange.request.prompts[0].params
        response = {name: getattr(body, name) for name in _TAKEN_OVER}
        return {
            "id": self._exchange.response_id,
            "object": "response",
            "created_at": self._exchange.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": self._exchange.model.names[0],
            "output": [],
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "reasoning": {"effort": body.reasoning and body.reasoning.effort, "summary": None},
            "service_tier": "default",
            "temperature": params.temperature,
            "text": {"format": (body.text and body.text.format) or {"type": "text"}},
            "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [],
            "top_p": params.top_p,
            "truncation": "disabled",
            "usage": None,
            **response,
        }

    def _item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._item_id,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _part(self, *, is_done: bool) -> dict[str, Any]:
        text = "".join(self._texts) if is_done else ""
        part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
        if self._wants_logprobs:
            part["logprobs"] = self._logprobs if is_done else []
        return part

    def _counts(self) -> dict[str, Any]:
        usage = self._usage.total()
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {
                "cached_tokens": self._usage.num_cached_tokens,
                "cache_write_tokens": 0,
            },
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        }

    def _part_event(self, name: str, **fields: Any) -> bytes:
        place = {"item_id": self._item_id, "output_index": 0, "content_index": 0}
        return self._event(name, **place, **fields)

    def _event(self, name: str, **fields: Any) -> bytes:
        return self._frame(f"response.{name}", fields)

    def _frame(self, kind: str, fields: dict[str, Any]) -> bytes:
        event = {"type": kind, "sequence_number": self._num_events, **fields}
        self._num_events += 1
        return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"


def _in_events(logprobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events have the tokens without their bytes."""
    return [
        {
            **_without_bytes(entry),
            "top_logprobs": [_without_bytes(top) for top in entry["top_logprobs"]],
        }
        for entry in logprobs
    ]


def _without_bytes(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "bytes"}
