"""Requests of a simulation: when they come, what they ask, and what follows them."""

from array import array
from dataclasses import dataclass, replace

from octavo.errors import CapacityError

FILLER = 0
"""The token that simulated models draw."""


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

    @property
    def prompt_len(self) -> int:
        """Tokens of the prompt."""
        return len(self.token_ids)

    def in_vocabulary(self, vocab_size: int) -> "SimRequest":
        """The same with tokens that a model of this vocabulary knows."""
        return replace(self, token_ids=array("i", (t % vocab_size for t in self.token_ids)))

    def after(self, end_s: float, max_model_len: int) -> "SimRequest | None":
        """The request that follows when this one ended at `end_s`: the whole conversation and the next turn.

        A conversation that has become too long for the context loses its beginning.
        """
        turn = self.next_turn
        if turn is None:
            return None
        token_ids = self.token_ids + array("i", [FILLER]) * self.output_len + turn.token_ids
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
