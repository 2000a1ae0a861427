"""The answer of /generate and /generate_stream: text, and its tokens one by one if they are asked for."""

import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from octavo.engine.messages import TokenLogprob
from octavo.errors import RequestFailedError
from octavo.server.best_of import best_of
from octavo.server.generation import ChoiceText, PromptScores
from octavo.server.openai.logprobs import FLOOR
from octavo.server.plain_request import PlainRequest
from octavo.server.tgi.validation import Validated
from octavo.text.detokenizer import Detokenizer

_WHAT = "tgi.GenerateRequest"


@dataclass(slots=True)
class _Choice:
    """What a choice has become so far."""

    text: Detokenizer
    """Follows the tokens: each has the text that it completes."""
    texts: list[str] = field(default_factory=list)
    tokens: list[dict[str, Any]] = field(default_factory=list)
    top_tokens: list[list[dict[str, Any]]] = field(default_factory=list)
    num_tokens: int = 0
    finish_reason: str = ""


class TgiAnswer:
    """Turns outputs into TGI's answer. Either form is used, once."""

    def __init__(self, plain: PlainRequest, asked: Validated, inputs: str) -> None:
        self._plain = plain
        self._asked = asked
        self._begin = inputs if asked.returns_full_text else ""
        self._tokenizer = plain.model.assets.tokenizer
        self._prefill: list[dict[str, Any]] = []
        self._choices = [self._new_choice() for _ in range(plain.params.n)]
        self.num_tokens = 0
        """Of the choice that is the answer."""
        self.first_token_s: float | None = None
        """When the first token came, by `time.perf_counter`."""

    async def whole(self) -> dict[str, Any]:
        """The JSON body."""
        num_choices = self._plain.params.n
        produced = self._plain.outputs(_WHAT)
        if num_choices > 1:
            produced = best_of(produced, num_choices, num_choices)  # all of them, the best first
        async with contextlib.aclosing(produced) as outputs:
            async for output in outputs:
                if isinstance(output, PromptScores):
                    self._prefill = self._prompt_tokens(output.values)
                elif isinstance(output, ChoiceText):
                    self._add(output)
        self.num_tokens = self._choices[0].num_tokens
        body: dict[str, Any] = {"generated_text": self._text(self._choices[0])}
        if self._asked.wants_details:
            body["details"] = self._details(self._choices[0])
            if num_choices > 1:
                body["details"]["best_of_sequences"] = [
                    {"generated_text": self._text(choice), **self._details(choice)}
                    for choice in self._choices[1:]
                ]
        return body

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """One event for each token. The last carries the whole text, and the details if they are asked for."""
        choice = self._choices[0]
        async with contextlib.aclosing(self._plain.outputs(_WHAT)) as outputs:
            async for output in outputs:
                if not isinstance(output, ChoiceText):
                    continue
                num_before = len(choice.tokens)
                self._add(output)
                for position in range(num_before, len(choice.tokens)):
                    is_last = position == len(choice.tokens) - 1 and bool(choice.finish_reason)
                    yield self._frame(choice, position, is_last=is_last)

    def _frame(self, choice: _Choice, position: int, *, is_last: bool) -> bytes:
        event: dict[str, Any] = {"index": position + 1, "token": choice.tokens[position]}
        if self._asked.top_n_tokens:
            event["top_tokens"] = choice.top_tokens[position]
        event["generated_text"] = self._text(choice) if is_last else None
        event["details"] = None
        if is_last and self._asked.wants_details:
            event["details"] = {
                **self._end(choice),
                "input_length": len(self._plain.token_ids),
            }
        return b"data:" + msgspec.json.encode(event) + b"\n\n"

    def _new_choice(self) -> _Choice:
        text = Detokenizer(
            self._tokenizer,
            self._plain.token_ids,
            skip_special_tokens=False,
            spaces_between_special_tokens=True,
        )
        return _Choice(text)

    def _add(self, output: ChoiceText) -> None:
        if self.first_token_s is None:
            self.first_token_s = time.perf_counter()
        choice = self._choices[output.index]
        choice.texts.append(output.text)
        choice.num_tokens += len(output.token_ids)
        for value in output.logprobs or ():
            text = choice.text.add((value.token_id,))
            choice.tokens.append(self._token(value.token_id, value.logprob, text))
            if self._asked.top_n_tokens:
                choice.top_tokens.append(self._top_tokens(value))
        if output.finish_reason is not None:
            choice.finish_reason = _finish_reason(output)

    def _token(self, token_id: int, logprob: float, text: str) -> dict[str, Any]:
        return {
            "id": token_id,
            "text": text,
            "logprob": max(logprob, FLOOR),
            "special": self._tokenizer.is_special(token_id),
        }

    def _top_tokens(self, value: TokenLogprob) -> list[dict[str, Any]]:
        return [
            self._token(token_id, logprob, self._tokenizer.token_text(token_id))
            for token_id, logprob in value.top
        ]

    def _prompt_tokens(self, values: list[TokenLogprob]) -> list[dict[str, Any]]:
        first = self._plain.token_ids[0]
        tokens = [{"id": first, "text": self._tokenizer.token_text(first), "logprob": None}]
        for value in values:
            text = self._tokenizer.token_text(value.token_id)
            logprob = max(value.logprob, FLOOR)
            tokens.append({"id": value.token_id, "text": text, "logprob": logprob})
        return tokens

    def _text(self, choice: _Choice) -> str:
        return self._begin + "".join(choice.texts)

    def _end(self, choice: _Choice) -> dict[str, Any]:
        return {
            "finish_reason": choice.finish_reason,
            "generated_tokens": choice.num_tokens,
            "seed": self._asked.seed,
        }

    def _details(self, choice: _Choice) -> dict[str, Any]:
        details = {**self._end(choice), "prefill": self._prefill, "tokens": choice.tokens}
        if self._asked.top_n_tokens:
            details["top_tokens"] = choice.top_tokens
        return details


def _finish_reason(output: ChoiceText) -> str:
    """Raises RequestFailedError for an answer that was not finished: TGI has no word for it."""
    if output.finish_reason == "length":
        return "length"
    if output.finish_reason == "stop":
        return "eos_token" if output.stop_reason is None else "stop_sequence"
    raise RequestFailedError(f"it was ended early ({output.finish_reason})")
