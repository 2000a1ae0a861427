"""Made-up loads: lengths of known distributions, arrivals, shared beginnings, conversations. A seed fixes all.

Lengths are log-normal as in the measured traces. ShareGPT and Alpaca have the means that Kwon et al. (SOSP 2023,
figure 11) report; that paper gives no spread, so the sigmas are assumptions, the same for both.
"""

import math
import random
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from octavo.errors import ConfigError
from octavo.planning.requests import NextTurn, SimRequest

PROMPT_SIGMA, OUTPUT_SIGMA = 1.1, 0.9
MIN_LEN = 4
_ID_SPACE = 1 << 30


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long prompts or answers are."""

    mean: float
    sigma: float = 0.0
    """Of the logarithm; 0: all are of the mean length."""

    def draw(self, source: random.Random) -> int:
        """A length of at least MIN_LEN, or the mean."""
        if self.sigma == 0.0:
            return max(1, round(self.mean))
        drawn = source.lognormvariate(math.log(self.mean) - self.sigma**2 / 2, self.sigma)
        return max(MIN_LEN, round(drawn))


@dataclass(frozen=True, slots=True)
class Population:
    """What requests look like."""

    prompts: Lengths
    outputs: Lengths
    n: int = 1
    """Answers to each prompt."""
    prefix_len: int = 0
    """Tokens that all prompts of a group begin with, besides their own."""
    num_prefixes: int = 1
    """Groups; a request is of any with the same chance."""
    turns: int = 1
    """Requests of a conversation."""
    pause_s: float = 10.0
    """From an answer to the next turn."""


KINDS: Mapping[str, Callable[[float, float], Population]] = {
    "sharegpt": lambda p, o: Population(Lengths(161.31, p), Lengths(337.99, o)),
    "alpaca": lambda p, o: Population(Lengths(19.31, p), Lengths(58.45, o)),
}
"""Populations by name, for given sigmas."""


def population(
    kind: str, prompt_sigma: float = PROMPT_SIGMA, output_sigma: float = OUTPUT_SIGMA
) -> Population:
    """`sharegpt`, `alpaca`, or `PROMPTxOUTPUT` for fixed lengths. Raises ConfigError."""
    if kind in KINDS:
        return KINDS[kind](prompt_sigma, output_sigma)
    prompt_len, _, output_len = kind.partition("x")
    if prompt_len.isdigit() and output_len.isdigit() and int(prompt_len) and int(output_len):
        return Population(Lengths(int(prompt_len)), Lengths(int(output_len)))
    raise ConfigError(
        f"--workload must be {', '.join(KINDS)}, lengths as in 512x128, or a file; given: {kind}"
    )


def poisson_times(rate: float, seed: int) -> Iterator[float]:
    """Arrivals in seconds, `rate` a second on average, without an end."""
    source = random.Random(f"arrivals {seed}")
    return accumulate(iter(lambda: source.expovariate(rate), None))


def make_requests(
    people: Population, rate: float, count: int, *, max_model_len: int, seed: int = 0
) -> list[SimRequest]:
    """`count` conversations that begin at random times; lengths are cut so that each fits the context.

    A rate of infinity lets all arrive at once.
    """
    source = random.Random(f"lengths {seed}")
    times = poisson_times(rate, seed) if rate < math.inf else iter(lambda: 0.0, None)
    prefixes = [fresh_tokens(-1 - i, people.prefix_len) for i in range(people.num_prefixes)]
    made: list[SimRequest] = []
    for number, time in zip(range(count), times, strict=False):
        prefix = prefixes[source.randrange(len(prefixes))] if people.prefix_len else array("i")
        turns = [_turn(people, source, max_model_len, len(prefix)) for _ in range(people.turns)]
        later: NextTurn | None = None
        for turn, (prompt_len, output_len) in reversed(list(enumerate(turns[1:], 1))):
            own = fresh_tokens(number + turn * count, prompt_len)
            later = NextTurn(own, output_len, people.pause_s, later)
        prompt_len, output_len = turns[0]
        prompt = prefix + fresh_tokens(number, prompt_len)
        made.append(SimRequest(f"r{number}", time, prompt, output_len, people.n, later))
    return made


def requests_for(
    people: Population, rate: float, seconds: float, *, max_model_len: int, seed: int = 0
) -> list[SimRequest]:
    """The requests that arrive in this time."""
    count = sum(1 for _ in _until(poisson_times(rate, seed), seconds))
    return make_requests(people, rate, max(1, count), max_model_len=max_model_len, seed=seed)


def draw_lengths(
    people: Population, count: int, *, max_model_len: int, seed: int = 0
) -> list[tuple[int, int]]:
    """Prompt and answer lengths of `count` first turns."""
    source = random.Random(f"lengths {seed}")
    return [_turn(people, source, max_model_len, people.prefix_len) for _ in range(count)]


def _turn(
    people: Population, source: random.Random, max_model_len: int, prefix_len: int
) -> tuple[int, int]:
    prompt_len = min(people.prompts.draw(source), max_model_len - prefix_len - 1)
    if prompt_len < 1:
        raise ConfigError(
            f"a prefix of {prefix_len} tokens leaves no room for a prompt in {max_model_len}"
        )
    output_len = people.outputs.draw(source)
    return prompt_len, min(output_len, max_model_len - prefix_len - prompt_len)


def fresh_tokens(number: int, length: int) -> "array[int]":
    """Tokens that begin as those of no other number."""
    first = (number * 0x9E3779B1) % _ID_SPACE + 1
    return array("i", range(first, first + length))


def _until(times: Iterator[float], end: float) -> Iterator[float]:
    for time in times:
        if time > end:
            return
        yield time
