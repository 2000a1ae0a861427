"""The text of one generated sequence, from its tokens as they come."""

from collections.abc import Sequence
from typing import NamedTuple

from octavo.core.sampling_params import SamplingParams
from octavo.text.detokenizer import Detokenizer
from octavo.text.stop_strings import StopStrings
from octavo.text.tokenizer import Tokenizer


class TextDelta(NamedTuple):
    """What some new tokens add to the output."""

    text: str
    num_tokens: int
    """How many of the new tokens belong to the output; those after a stop string do not."""
    finish_reason: str | None
    """stop | length | abort | error; None: there is more to come, or the end was told before."""
    stop_reason: int | str | None
    """The stop string, or the stop token id, that ended the text."""


class OutputText:
    """Turns the tokens of one sequence into text and finds its stop strings.

    The joined text and the end are the same however the tokens are split over calls.

    - A stop string counts where it begins in the text of the tokens after the first `min_tokens`. What
      begins before is ordinary text, also if it is complete later only.
    - The text ends before the stop string, within a token too; the token that completes it counts. With
      `include_stop_str_in_output` the text ends after it.
    - A stop string that is the text of a special token stops at that token, also where
      `skip_special_tokens` keeps it out of the text.
    - The token that made the engine stop (an end token, or one of `stop_token_ids`) is not in the text, unless
      `include_stop_str_in_output` is set (and `skip_special_tokens` does not leave it out anyway).
    - A stop string overrides the engine's reason: finish "stop", and the string as stop reason.
    """

    def __init__(
        self, tokenizer: Tokenizer, params: SamplingParams, prompt_token_ids: Sequence[int]
    ) -> None:
        self._min_tokens = params.min_tokens
        self._include_stop = params.include_stop_str_in_output
        self._num_tokens = 0
        self._ended = False
        self._detokenizer: Detokenizer | None = None
        if params.detokenize:
            self._detokenizer = Detokenizer(
                tokenizer,
                prompt_token_ids,
                skip_special_tokens=params.skip_special_tokens,
                spaces_between_special_tokens=params.spaces_between_special_tokens,
            )
        self._stops: StopStrings | None = None
        self._special_stops: dict[int, str] = {}
        if params.stop:
            self._stops = StopStrings(params.stop, include_in_text=self._include_stop)
            for stop in params.stop:
                token_id = tokenizer.token_id(stop)
                if token_id is not None and tokenizer.is_special(token_id):
                    self._special_stops[token_id] = stop

    def add(
        self,
        token_ids: Sequence[int],
        finish_reason: str | None = None,
        stop_reason: int | None = None,
    ) -> TextDelta:
        """What new tokens add; with a finish reason they are the last, and all that was held back comes.

        After the end, also one by a stop string, nothing more is added: tokens on their way are dropped.
        """
        if self._ended:
            return TextDelta("", 0, None, None)
        if finish_reason is not None:
            self._ended = True
        if self._detokenizer is None:
            return TextDelta("", len(token_ids), finish_reason, stop_reason)
        if self._stops is None:
            shown = self._shown(token_ids, finish_reason)
            text = self._detokenizer.add(shown)
            if finish_reason is not None:
                text += self._detokenizer.finish()
            return TextDelta(text, len(token_ids), finish_reason, stop_reason)
        return self._search(token_ids, finish_reason, stop_reason, self._detokenizer, self._stops)

    def _search(
        self,
        token_ids: Sequence[int],
        finish_reason: str | None,
        stop_reason: int | None,
        detokenizer: Detokenizer,
        stops: StopStrings,
    ) -> TextDelta:
        texts: list[str] = []
        num_shown = len(self._shown(token_ids, finish_reason))
        for i, token_id in enumerate(token_ids):
            self._num_tokens += 1
            piece = detokenizer.add((token_id,)) if i < num_shown else ""
            if self._num_tokens <= self._min_tokens:
                texts.append(piece)
                continue
            text, stop = stops.add(piece)
            texts.append(text)
            if stop is None and token_id in self._special_stops:
                text, stop = self._flush(detokenizer, stops)
                texts.append(text)
                stop = stop or self._special_stops[token_id]
            if stop is not None:
                self._ended = True
                return TextDelta("".join(texts), i + 1, "stop", stop)
        if finish_reason is None:
            return TextDelta("".join(texts), len(token_ids), None, None)
        text, stop = self._flush(detokenizer, stops)
        texts.append(text)
        if stop is not None:
            return TextDelta("".join(texts), len(token_ids), "stop", stop)
        return TextDelta("".join(texts), len(token_ids), finish_reason, stop_reason)

    def _shown(self, token_ids: Sequence[int], finish_reason: str | None) -> Sequence[int]:
        """The tokens without the one that made the engine stop."""
        if finish_reason == "stop" and not self._include_stop:
            return token_ids[:-1]
        return token_ids

    def _flush(self, detokenizer: Detokenizer, stops: StopStrings) -> tuple[str, str | None]:
        """The end of the text, and the stop string if that completes one (one with U+FFFD in it)."""
        piece = detokenizer.finish()
        if self._num_tokens <= self._min_tokens:
            return piece + stops.finish(), None
        text, stop = stops.add(piece)
        return (text, stop) if stop is not None else (text + stops.finish(), None)
