"""Requests of a simulation: when they come, what they ask, what they are answered, and what follows them."""

from array import array
from dataclasses import dataclass, replace
from zlib import crc32

from octavo.errors import CapacityError

_ANSWER_IDS = range((1 << 30) + (1 << 24), (1 << 31) - (1 << 16))
"""Above all that made-up prompts hold, and below what 32 bits do."""


def answer_token(request_id: str, index: int) -> int:
    """The one token that a made-up answer repeats; another for each, so that no two answers look alike to a cache."""
    return _ANSWER_IDS[crc32(request_id.encode()) % len(_ANSWER_IDS)] + index


@dataclass(frozen=True, slots=True)
class NextTurn:
    """What the user says after an answer."""

    token_ids: "array[int]"
    output_len: int
    pause_s: float
    """From the end of the answer to the next request."""
    next_turn: "NextTurn | None" = None


@dataclass(frozen=True, slots=True)
class SimRequest:
    """A request whose answer has a known length."""

    request_id: str
    arrival_s: float
    token_ids: "array[int]"
    """The prompt. Equal beginnings are what a prefix cache finds."""
    output_len: int
    n: int = 1
    """Answers to the prompt."""
    next_turn: NextTurn | None = None
    answers: tuple["array[int]", ...] = ()
    """What was answered, where that is recorded: `output_len` tokens each."""

    @property
    def prompt_len(self) -> int:
        """Tokens of the prompt."""
        return len(self.token_ids)

    @property
    def num_turns(self) -> int:
        """This request, and those that follow it."""
        count, turn = 1, self.next_turn
        while turn is not None:
            count, turn = count + 1, turn.next_turn
        return count

    def in_vocabulary(self, vocab_size: int) -> "SimRequest":
        """The same with tokens that a model of this vocabulary knows."""
        return replace(self, token_ids=array("i", (t % vocab_size for t in self.token_ids)))

    def answer(self, index: int) -> "array[int]":
        """The tokens of an answer: recorded, or made up."""
        if self.answers:
            return self.answers[index]
        return array("i", [answer_token(self.request_id, index)]) * self.output_len

    def after(self, end_s: float, max_model_len: int) -> "SimRequest | None":
        """The request that follows when this one ended at `end_s`: the whole conversation and the next turn.

        A conversation that has become too long for the context loses its beginning.
        """
        turn = self.next_turn
        if turn is None:
            return None
        token_ids = self.token_ids + self.answer(0) + turn.token_ids
        token_ids = token_ids[-(max_model_len - turn.output_len) :]
        return SimRequest(
            f"{self.request_id}+",
            end_s + turn.pause_s,
            token_ids,
            turn.output_len,
            self.n,
            turn.next_turn,
        )


def check_length(request: SimRequest, max_model_len: int) -> None:
    """Raise CapacityError for a request that is longer than the context: its answer would be cut."""
    longest = request.prompt_len + request.output_len
    if longest > max_model_len:
        raise CapacityError(
            f"request {request.request_id} has {longest} tokens ({request.prompt_len} of the prompt); a sequence has "
            f"at most {max_model_len}"
        )
