"""Finding the tool calls in the text of an answer, as it comes."""

import json
import re
from collections.abc import Collection
from enum import Enum, auto
from typing import TypeAlias

from octavo.text.answer.call_reader import CallReader
from octavo.text.answer.parts import CallArguments, CallStart, Content, held_back
from octavo.text.answer.tool_formats import ToolFormat

ToolPart: TypeAlias = Content | CallStart | CallArguments
_NAME = re.compile(r"[\w.\-/:]{1,256}")


class _In(Enum):
    START = auto()
    CONTENT = auto()
    BEFORE_CALL = auto()
    """After the mark, before a call or the next of several."""
    CALL = auto()
    AFTER_CALL = auto()


class ToolParser:
    """Splits an answer into content and calls. The pieces joined are the same however the text is cut.

    What looks like a call and is none is content, as it stands. Whitespace next to calls belongs to neither.
    """

    def __init__(
        self, form: ToolFormat, names: Collection[str], *, max_calls: int | None = None
    ) -> None:
        """`names`: the tools there are; `max_calls`: further calls are left out."""
        self._form = form
        # Without a mark, an object is only a call if it names a tool: the answer may be JSON.
        self._names = None if form.start else names
        self._max_calls = max_calls
        self._in = _In.CONTENT if form.start else _In.START
        self._buffer = ""
        self._opening = ""
        """What stood before a call that has not begun."""
        self._call = CallReader(0, self._names)
        self._num_calls = 0
        self._head = ""
        """The beginning of a call whose name stands before its arguments, as an object has it."""
        self._parts: list[ToolPart] = []
        self._content = _ContentText(self._parts)

    def add(self, text: str) -> list[ToolPart]:
        """What more text adds."""
        self._buffer += text
        while self._step(is_last=False):
            pass
        return self._taken()

    def finish(self) -> list[ToolPart]:
        """What was held back, at the end of the answer."""
        while self._step(is_last=True):
            pass
        if self._in is _In.CALL and not self._call.has_begun:
            self._content.say(self._opening + self._call.raw)
        elif self._in is _In.BEFORE_CALL and self._num_calls == 0:
            self._content.say(self._opening)
        self._content.finish()
        return self._taken()

    def _taken(self) -> list[ToolPart]:
        taken = [
            part
            for part in self._parts
            if isinstance(part, Content) or self._max_calls is None or part.index < self._max_calls
        ]
        self._parts.clear()
        return taken

    def _step(self, *, is_last: bool) -> bool:
        """Go on to the next state. False: more text is needed."""
        match self._in:
            case _In.START:
                return self._begin(is_last)
            case _In.CONTENT:
                return self._find_mark(is_last)
            case _In.BEFORE_CALL:
                return self._find_call(is_last)
            case _In.CALL:
                return self._read_call()
            case _In.AFTER_CALL:
                return self._find_end(is_last)

    def _begin(self, is_last: bool) -> bool:
        """In a format without a mark calls are found at the beginning only."""
        text, mark = self._buffer.lstrip(), self._form.optional_start
        if text.startswith((mark, "{")):
            self._open(len(self._buffer) - len(text) + len(mark) * text.startswith(mark))
            self._in = _In.BEFORE_CALL
            return True
        if mark.startswith(text) and not is_last:
            return False
        self._in = _In.CONTENT
        return True

    def _find_mark(self, is_last: bool) -> bool:
        mark = self._form.start
        place = self._buffer.find(mark) if mark else -1
        if place >= 0:
            self._content.say(self._buffer[:place])
            self._buffer = self._buffer[place:]
            self._open(len(mark))
            self._in = _In.BEFORE_CALL
            return True
        count = 0 if is_last else held_back(self._buffer, mark)
        self._content.say(self._buffer[: len(self._buffer) - count])
        self._buffer = self._buffer[len(self._buffer) - count :]
        return False

    def _find_call(self, is_last: bool) -> bool:
        """Pass over marks, whitespace and separators up to a call, or to what is none."""
        mark = self._form.start
        while True:
            self._open(len(self._buffer) - len(self._buffer.lstrip()))
            if not self._buffer or (mark.startswith(self._buffer) and not is_last):
                return False
            if mark and self._buffer.startswith(mark):
                self._open(len(mark))
            elif self._buffer[0] in self._form.separators:
                self._open(1)
            else:
                break
        if self._buffer[0] == "{":
            self._begin_call("")
            return True
        if self._form.arguments_mark:
            found = self._find_name(is_last)
            if found is not None:
                return found
        self._leave_calls()
        return True

    def _find_name(self, is_last: bool) -> bool | None:
        """A call whose name stands before its arguments. None: it is none; False: more text is needed."""
        name, mark = _NAME.match(self._buffer), self._form.arguments_mark
        if name is None:
            return None
        rest = self._buffer[name.end() :]
        if rest.startswith((mark, "{")):
            self._open(name.end() + len(mark) * rest.startswith(mark))
            self._begin_call(f'{{"name": {json.dumps(name[0])}, "arguments": ')
            return True
        return False if mark.startswith(rest) and not is_last else None

    def _begin_call(self, head: str) -> None:
        self._call, self._head, self._in = CallReader(self._num_calls, self._names), head, _In.CALL
        if head:
            self._tell(self._call.feed(head)[0])

    def _read_call(self) -> bool:
        if not self._buffer:
            return False
        told, count = self._call.feed(self._buffer)
        self._buffer = self._buffer[count:]
        self._tell(told)
        if self._call.is_refused:
            self._buffer = self._call.raw + self._buffer
            self._leave_calls()
            return True
        if not (self._call.has_ended or (self._head and self._call.arguments_ended)):
            return False
        self._in, self._opening = _In.AFTER_CALL, ""
        return True

    def _tell(self, told: "list[CallStart | CallArguments]") -> None:
        if any(isinstance(part, CallStart) for part in told):
            self._num_calls += 1
            self._content.interrupt()
        self._parts += told

    def _leave_calls(self) -> None:
        """What seemed to begin a call is content, and so is what follows."""
        if self._num_calls == 0 or self._form.start in self._opening:
            self._content.say(self._opening)
        # Its first character is said: it is not looked at again.
        self._content.say(self._buffer[:1])
        self._opening, self._buffer, self._in = "", self._buffer[1:], _In.CONTENT

    def _find_end(self, is_last: bool) -> bool:
        text, end = self._buffer.lstrip(), self._form.end
        is_cut = end.startswith(text) and text != end
        if is_cut and not is_last:
            return False
        self._buffer = "" if is_cut else text.removeprefix(end)
        # Where every call has a mark of its own, content may follow.
        self._in = _In.CONTENT if end else _In.BEFORE_CALL
        return True

    def _open(self, count: int) -> None:
        """Pass over what stands before a call."""
        self._opening, self._buffer = self._opening + self._buffer[:count], self._buffer[count:]


class _ContentText:
    """Content, without the whitespace next to calls."""

    def __init__(self, parts: list[ToolPart]) -> None:
        self._parts = parts
        self._space = ""
        """Whitespace that is content unless a call comes."""
        self._is_after_call = False

    def say(self, text: str) -> None:
        """More content."""
        if self._is_after_call:
            text = text.lstrip()
            self._is_after_call = not text
        text = self._space + text
        ready = text.rstrip()
        self._space = text[len(ready) :]
        if ready:
            self._parts.append(Content(ready))

    def interrupt(self) -> None:
        """A call comes."""
        self._space, self._is_after_call = "", True

    def finish(self) -> None:
        """The end of the answer: whitespace is content if no call came before it."""
        if self._space:
            self._parts.append(Content(self._space))
            self._space = ""
