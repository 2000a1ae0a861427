"""The answer of /v1/responses, whole or as a stream of events."""

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any

import msgspec

from octavo.errors import OctavoError
from octavo.server.generation import ChoiceText, Output
from octavo.server.http_errors import error_object, message_of
from octavo.server.openai.answer_plan import AnswerPlan, PartReader
from octavo.server.openai.exchange import Exchange, now
from octavo.server.openai.logprobs import chat_logprobs
from octavo.server.openai.responses.items import OutputItems
from octavo.server.openai.responses.request import ResponsesRequest
from octavo.server.openai.usage import Usage
from octavo.text.answer.parts import Content, Part

_TAKEN_OVER = (
    "instructions", "metadata", "max_output_tokens", "previous_response_id", "top_logprobs", "user",
    "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
)  # fmt: skip
"""Fields of the request that the response repeats."""


class ResponsesAnswer:
    """Turns outputs into the output items of a response: messages, function calls, reasoning.

    `keep` is called with the finished response, once, before its last byte is sent: who has it may go on from it.
    """

    def __init__(
        self,
        exchange: Exchange,
        plan: AnswerPlan,
        body: ResponsesRequest,
        keep: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        self._exchange = exchange
        self._body = body
        self._keep = keep
        self._usage = Usage(exchange.request)
        self._wants_logprobs = bool(getattr(exchange.body, "logprobs", None))
        self._reader = PartReader(plan)
        self._items = OutputItems(
            exchange.response_id, plan.new_call_id, wants_logprobs=self._wants_logprobs
        )
        self._last: ChoiceText | None = None
        self._num_events = 0

    async def whole(self) -> bytes:
        """The JSON body."""
        texts: list[str] = []
        logprobs: list[dict[str, Any]] = []
        async with contextlib.aclosing(self._exchange.outputs()) as outputs:
            async for output in outputs:
                self._usage.count(output)
                if isinstance(output, ChoiceText):
                    self._last = output
                    texts.append(output.text)
                    logprobs += self._logprobs(output)
        # The events of items are made and dropped: the items are what stays.
        for _ in self._items.add(self._parts("".join(texts), logprobs, is_last=True), logprobs):
            pass
        for _ in self._items.finish(self._status):
            pass
        return msgspec.json.encode(await self._finished())

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
            for name, fields in self._items.finish(self._status):
                yield self._event(name, **fields)
            response = await self._finished()
            yield self._event(response["status"], response=response)

    def _frames_of(self, output: Output) -> Iterator[bytes]:
        if not self._num_events:
            response = self._response("in_progress")
            yield self._event("created", response=response)
            yield self._event("in_progress", response=response)
        self._usage.count(output)
        if isinstance(output, ChoiceText):
            self._last = output
            logprobs = self._logprobs(output)
            parts = self._parts(output.text, logprobs, is_last=output.finish_reason is not None)
            for name, fields in self._items.add(parts, logprobs):
                yield self._event(name, **fields)

    def _parts(self, text: str, logprobs: list[dict[str, Any]], *, is_last: bool) -> list[Part]:
        """Tokens without text may have log-probabilities, which text has to carry."""
        parts = self._reader.add(text, is_last=is_last)
        return parts or ([Content("")] if logprobs else [])

    def _logprobs(self, output: ChoiceText) -> list[dict[str, Any]]:
        if not self._wants_logprobs:
            return []
        logprobs = chat_logprobs(output.logprobs or [], self._exchange.names)
        content: list[dict[str, Any]] = logprobs["content"]
        return content

    def _failed(self, error: OctavoError) -> list[bytes]:
        response = self._response("failed")
        response["error"] = {"code": "server_error", "message": message_of(error)}
        told = error_object(error)["error"]
        data = {"code": str(told["code"]), "message": told["message"], "param": told["param"]}
        return [self._frame("error", data), self._event("failed", response=response)]

    @property
    def _status(self) -> str:
        reason = self._last.finish_reason if self._last else None
        return "incomplete" if reason in ("length", "abort") else "completed"

    async def _finished(self) -> dict[str, Any]:
        """The whole response, which is kept if the client wants that."""
        response = self._response(self._status)
        if self._status == "incomplete":
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            response["completed_at"] = now()
        response["output"] = self._items.items
        response["usage"] = self._counts()
        await self._keep(response)
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
            "tools": [{"parameters": None, "strict": False, **tool} for tool in body.tools or ()],
            "top_p": params.top_p,
            "truncation": "disabled",
            "usage": None,
            **response,
        }

    def _counts(self) -> dict[str, Any]:
        usage = self._usage.total()
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {
                "cached_tokens": self._usage.num_cached_tokens,
                "cache_write_tokens": 0,
            },
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": self._num_reasoning_tokens()},
            "total_tokens": usage["total_tokens"],
        }

    def _num_reasoning_tokens(self) -> int:
        """Of the thoughts encoded again: which tokens the model wrote them in is lost where their text is split off."""
        thoughts = [
            part["text"]
            for item in self._items.items
            if item["type"] == "reasoning"
            for part in item["content"]
        ]
        encode = self._exchange.model.assets.tokenizer.encode
        return sum(len(encode(text, add_special_tokens=False)) for text in thoughts)

    def _event(self, name: str, **fields: Any) -> bytes:
        return self._frame(f"response.{name}", fields)

    def _frame(self, kind: str, fields: dict[str, Any]) -> bytes:
        event = {"type": kind, "sequence_number": self._num_events, **fields}
        self._num_events += 1
        return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"
