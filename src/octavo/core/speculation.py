"""Guessing the next tokens of a sequence, so that one step can draw several.

A guess is what followed the last occurrence, in the sequence's own prompt and output, of the tokens that it ends with
now (prompt lookup: Saxena, 2023). The step computes the guessed tokens as if they were known and draws after each of
them; those draws count up to the first that differs from its guess. The result is the very token that would have been
drawn without guessing, with the same log-probability, whatever the sampling parameters: a draw depends on the tokens
before it, the seed and the output index only. So a wrong guess costs time, and a right one saves a step.

Time is what all of this is about, and the rules go by what steps were measured to take: a step reads all weights
once, whether it computes one token or `FREE_TOKENS`, and up to `MOST_TOKENS` a further token costs a tenth of the step.
There is no clock here. Tokens up to the first count are always used; tokens up to the second by sequences whose guesses
have been right, and now and then by one that may have become predictable.
"""

from array import array
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field

from octavo.config import SpeculationConfig
from octavo.core.sequence import Sequence
from octavo.core.step import NOTHING, SeqId

FREE_TOKENS = 4
"""A step of so many tokens takes as long as one of a single token (within 10 %)."""
MOST_TOKENS = 8
"""A step that computes more without any guess is bound by arithmetic, so that guesses no longer pay."""
MAX_PAUSE = 32
"""Steps that a sequence without luck waits at most before it tries again."""
_ITEM = NOTHING.itemsize


@dataclass(slots=True)
class Pace:
    """How far to guess ahead for one sequence: further while guesses are right, less or not at all when they fail."""

    length: int = 1
    """Tokens to guess next."""
    pause: int = 0
    """Steps until it may spend tokens that are not free again."""
    setback: int = 0
    """How long the next pause is, at least; halved by each success, so that one lucky guess does not undo it."""

    def allowance(self, num_free: int) -> int:
        """Tokens to guess now, where `num_free` of them would cost nothing."""
        if self.pause > 0:
            self.pause -= 1
            return num_free
        return max(num_free, self.length)

    def learn(self, num_guessed: int, num_right: int) -> None:
        """A guess has been compared with what was drawn."""
        if num_right == num_guessed:
            self.length = max(self.length, 2 * num_guessed)
        else:
            self.length = num_right + 1
        if num_right:
            self.setback //= 2
            self.pause = 0
        else:
            self.setback = min(2 * self.setback + 1, MAX_PAUSE)
            self.pause = self.setback


@dataclass(slots=True)
class SpeculationCounts:
    """Totals since the start."""

    num_drafts: int = 0
    """Guesses: one for a sequence in a step."""
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0


@dataclass(slots=True)
class Speculator:
    """Guesses for the sequences of a step, and learns from what became of the guesses."""

    config: SpeculationConfig
    counts: SpeculationCounts = field(default_factory=SpeculationCounts)
    _paces: dict[SeqId, Pace] = field(default_factory=dict)

    @property
    def max_tokens(self) -> int:
        """Most tokens of a step with guesses. A user who asks for longer guesses gets them for a single sequence."""
        return max(MOST_TOKENS, 1 + self.config.num_speculative_tokens)

    def guess(
        self, candidates: Ordered[tuple[Sequence, int]], num_tokens: int, max_tokens: int
    ) -> dict[SeqId, "array[int]"]:
        """Guesses for some of the sequences, in a step that computes `num_tokens` without and may compute `max_tokens`.

        A candidate comes with the number of tokens that it may still generate; the last of them is never guessed.
        """
        guesses: dict[SeqId, array[int]] = {}
        spare = min(max_tokens, self.max_tokens) - num_tokens
        free = max(0, FREE_TOKENS - num_tokens)
        for i, (sequence, num_left) in enumerate(candidates):
            num_others = len(candidates) - i  # each leaves an equal share to those after it
            pace = self._paces.setdefault(sequence.seq_id, Pace())
            most = min(
                pace.allowance(-(-free // num_others)),
                -(-spare // num_others),
                num_left - 1,
                self.config.num_speculative_tokens,
            )
            guess = self._look_up(sequence.token_ids, most) if most > 0 else NOTHING
            if guess:
                guesses[sequence.seq_id] = guess
                spare -= len(guess)
                free = max(0, free - len(guess))
        return guesses

    def learn(self, seq_id: SeqId, num_guessed: int, num_right: int) -> None:
        """What became of a guess. One that ended its sequence only counts."""
        self.counts.num_drafts += 1
        self.counts.num_draft_tokens += num_guessed
        self.counts.num_accepted_tokens += num_right
        if pace := self._paces.get(seq_id):
            pace.learn(num_guessed, num_right)

    def forget(self, seq_id: SeqId) -> None:
        """A sequence has ended."""
        self._paces.pop(seq_id, None)

    def _look_up(self, token_ids: "array[int]", count: int) -> "array[int]":
        config = self.config
        return continuation(token_ids, config.prompt_lookup_max, config.prompt_lookup_min, count)


def continuation(token_ids: "array[int]", longest: int, shortest: int, count: int) -> "array[int]":
    """The `count` tokens that followed the last earlier occurrence of the sequence's last tokens; none if there is none.

    The longest match of `longest` .. `shortest` tokens counts. Where it reaches into what it predicts, the text is
    taken to go on repeating itself. O(len(token_ids)), at the speed of a search for bytes.
    """
    data = token_ids.tobytes()
    if _last_place(data, shortest) is None:
        return NOTHING
    for length in range(min(longest, len(token_ids) - 1), shortest - 1, -1):
        place = _last_place(data, length)
        if place is not None:
            follows = token_ids[place + length : place + length + count]
            while len(follows) < count:
                follows.extend(follows[: count - len(follows)])
            return follows
    return NOTHING


def _last_place(data: bytes, length: int) -> int | None:
    """Where the last `length` tokens occurred the last time before, if they did."""
    size = length * _ITEM
    if length < 1 or len(data) <= size:
        return None
    pattern = data[-size:]
    end = len(data) - _ITEM  # the occurrence that ends with the sequence itself is not asked for
    while (at := data.rfind(pattern, 0, end)) >= 0:
        if at % _ITEM == 0:
            return at // _ITEM
        end = at + size - 1  # bytes of two neighbours: not a token
    return None
