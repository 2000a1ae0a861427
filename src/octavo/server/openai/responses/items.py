"""The output items of a response and the events that tell of them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeAlias

from octavo.text.answer.parts import CallStart, Content, Part, Reasoning

ItemEvent: TypeAlias = tuple[str, dict[str, Any]]
"""Name, without `response.`, and fields."""
Logprobs: TypeAlias = list[dict[str, Any]]


class _Item(Protocol):
    """What an item is while it comes."""

    def as_it_stands(self, status: str) -> dict[str, Any]:
        """The item. One that is in progress has nothing in it yet."""
        ...

    def begin(self) -> Iterator[ItemEvent]:
        """After it has been announced."""
        ...

    def add(self, text: str, logprobs: Logprobs) -> ItemEvent:
        """More text."""
        ...

    def end(self) -> Iterator[ItemEvent]:
        """Before it is told as a whole."""
        ...


class _Message:
    """Text for the user: one part."""

    def __init__(self, item_id: str, *, wants_logprobs: bool) -> None:
        self._id = item_id
        self._texts: list[str] = []
        self._logprobs: Logprobs | None = [] if wants_logprobs else None

    def as_it_stands(self, status: str) -> dict[str, Any]:
        content = [] if status == "in_progress" else [self._part(is_done=True)]
        fields = {"type": "message", "role": "assistant", "content": content}
        return {"id": self._id, "status": status, **fields}

    def begin(self) -> Iterator[ItemEvent]:
        yield "content_part.added", {"content_index": 0, "part": self._part(is_done=False)}

    def add(self, text: str, logprobs: Logprobs) -> ItemEvent:
        self._texts.append(text)
        if self._logprobs is not None:
            self._logprobs += logprobs
        told = {"delta": text, "logprobs": _in_events(logprobs)}
        return "output_text.delta", {"content_index": 0, **told}

    def end(self) -> Iterator[ItemEvent]:
        told = {"text": "".join(self._texts), "logprobs": _in_events(self._logprobs or [])}
        yield "output_text.done", {"content_index": 0, **told}
        yield "content_part.done", {"content_index": 0, "part": self._part(is_done=True)}

    def _part(self, *, is_done: bool) -> dict[str, Any]:
        text = "".join(self._texts) if is_done else ""
        part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
        if self._logprobs is not None:
            part["logprobs"] = self._logprobs if is_done else []
        return part


class _Thoughts:
    """What the model thinks: one part, and no summary."""

    def __init__(self, item_id: str) -> None:
        self._id = item_id
        self._texts: list[str] = []

    def as_it_stands(self, status: str) -> dict[str, Any]:
        content = [] if status == "in_progress" else [self._part("".join(self._texts))]
        fields = {"type": "reasoning", "summary": [], "content": content}
        return {"id": self._id, "status": status, **fields}

    def begin(self) -> Iterator[ItemEvent]:
        yield "content_part.added", {"content_index": 0, "part": self._part("")}

    def add(self, text: str, _: Logprobs) -> ItemEvent:
        self._texts.append(text)
        return "reasoning_text.delta", {"content_index": 0, "delta": text}

    def end(self) -> Iterator[ItemEvent]:
        text = "".join(self._texts)
        yield "reasoning_text.done", {"content_index": 0, "text": text}
        yield "content_part.done", {"content_index": 0, "part": self._part(text)}

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "reasoning_text", "text": text}


class _Call:
    """A function that is to be called."""

    def __init__(self, item_id: str, call_id: str, name: str) -> None:
        self._fields = {"id": item_id, "type": "function_call", "call_id": call_id, "name": name}
        self._texts: list[str] = []

    def as_it_stands(self, status: str) -> dict[str, Any]:
        return {**self._fields, "status": status, "arguments": "".join(self._texts)}

    def begin(self) -> Iterator[ItemEvent]:
        yield from ()

    def add(self, text: str, _: Logprobs) -> ItemEvent:
        self._texts.append(text)
        return "function_call_arguments.delta", {"delta": text}

    def end(self) -> Iterator[ItemEvent]:
        yield "function_call_arguments.done", {"arguments": "".join(self._texts)}


class OutputItems:
    """Items come one after another. The same parts give the same items, however they are cut."""

    def __init__(
        self, response_id: str, new_call_id: Callable[[], str], *, wants_logprobs: bool
    ) -> None:
        self._suffix = response_id.partition("-")[2]
        self._new_call_id = new_call_id
        self._wants_logprobs = wants_logprobs
        self.items: list[dict[str, Any]] = []
        """Those that have ended."""
        self._current: _Item | None = None
        self._id = ""
        """Of the current one."""

    def add(self, parts: Iterable[Part], logprobs: Logprobs) -> Iterator[ItemEvent]:
        """What these parts add. `logprobs` are those of the one part, of a message, that comes with them."""
        for part in parts:
            if isinstance(part, CallStart):
                yield from self._begin(_Call(self._new_id("fc"), self._new_call_id(), part.name))
                continue
            if isinstance(part, Reasoning) and not isinstance(self._current, _Thoughts):
                yield from self._begin(_Thoughts(self._new_id("rs")))
            elif isinstance(part, Content) and not isinstance(self._current, _Message):
                yield from self._begin_message()
            assert self._current is not None
            yield self._placed(self._current.add(part.text, logprobs))

    def finish(self, status: str) -> Iterator[ItemEvent]:
        """The end of all items. The last one has the status of the response; there is one, if an empty one."""
        if self._current is None:
            yield from self._begin_message()
        yield from self._end(status)

    def _begin_message(self) -> Iterator[ItemEvent]:
        yield from self._begin(_Message(self._new_id("msg"), wants_logprobs=self._wants_logprobs))

    def _new_id(self, prefix: str) -> str:
        num_items = len(self.items) + (self._current is not None)
        return f"{prefix}-{self._suffix}-{num_items}"

    def _begin(self, item: _Item) -> Iterator[ItemEvent]:
        yield from self._end("completed")
        self._current = item
        begun = item.as_it_stands("in_progress")
        self._id = begun["id"]
        yield "output_item.added", {"output_index": len(self.items), "item": begun}
        yield from map(self._placed, item.begin())

    def _end(self, status: str) -> Iterator[ItemEvent]:
        if self._current is None:
            return
        yield from map(self._placed, self._current.end())
        done = self._current.as_it_stands(status)
        yield "output_item.done", {"output_index": len(self.items), "item": done}
        self.items.append(done)
        self._current = None

    def _placed(self, event: ItemEvent) -> ItemEvent:
        name, fields = event
        return name, {"item_id": self._id, "output_index": len(self.items), **fields}


def _in_events(logprobs: Logprobs) -> Logprobs:
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
