"""What a system must offer to be compared, and what it gives back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from octavo.evaluation.throughput import WorkItem
from octavo.progress import Progress

Setting: TypeAlias = Mapping[str, str]
"""Options of one system, by its own names."""
OUTPUT_RATE = "output_tokens_per_s"
PROMPT_RATE = "prompt_tokens_per_s"
COMPARABLE_STATES: Mapping[str, frozenset[str]] = {
    "speculation": frozenset(("off",)),
    "prefix_cache": frozenset(("off", "empty", "on, empty at the start")),
}
"""What must be known of a run before it is compared; `empty` and `on, empty at the start`: it holds nothing of the run."""


class PeerError(Exception):
    """A system cannot be set up or cannot do this; the message says why and goes into the result."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """One model in the forms that systems read."""

    gguf: Path
    folder: Path | None
    """A Hugging Face folder of bfloat16 weights made from it; None: not for this model."""


@dataclass(frozen=True, slots=True)
class Job:
    """Requests that a system gets all at once. Greedy, past end tokens, as many threads as cores."""

    model: ModelFiles
    items: tuple[WorkItem, ...]
    warm_up: tuple[WorkItem, ...]
    """Other prompts, to be run first."""
    num_threads: int

    @property
    def max_model_len(self) -> int:
        """Tokens of the longest request, prompt and output."""
        return max(len(i.prompt_token_ids) + i.max_tokens for i in (*self.items, *self.warm_up))


@dataclass(frozen=True, slots=True)
class Run:
    """What one leg came to."""

    figures: Mapping[str, float]
    state: Mapping[str, str]
    """Speculation and prefix cache."""
    facts: Mapping[str, Any]
    """Whatever else the system said about it."""

    def check(self) -> None:
        """Raise PeerError unless the state is known and the same for all."""
        for name, allowed in COMPARABLE_STATES.items():
            if self.state.get(name) not in allowed:
                raise PeerError(
                    f"not comparable: {name} is {self.state.get(name, 'unknown')}, not "
                    f"{' or '.join(sorted(allowed))}"
                )


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """How a server is started."""

    arguments: tuple[str, ...]
    """The whole command."""
    environment: Mapping[str, str]
    """Variables to add."""
    state: Mapping[str, str]


class System(Protocol):
    """Runs requests all at once, each leg in a process of its own."""

    name: str

    def run(self, job: Job, setting: Setting) -> Run:
        """One leg. Raises PeerError."""
        ...


@runtime_checkable
class ServingSystem(System, Protocol):
    """Has a server with the routes of OpenAI, too."""

    def server(self, job: Job, setting: Setting, port: int) -> ServerCommand:
        """How to start it on a port of this machine, for requests like these. Raises PeerError."""
        ...


class Peer(System, Protocol):
    """A system that Octavo is compared with."""

    num_pairs: int
    """Pairs that are enough: a system that takes minutes for one has fewer."""
    first: int | None
    """The first requests of a workload on which settings are tried; None: all."""

    def set_up(self, progress: Progress) -> Mapping[str, str]:
        """Install what is missing; versions by package. Raises PeerError."""
        ...

    def settings(self, job: Job) -> Sequence[Setting]:
        """The settings of which the best is to be compared, at least one."""
        ...


def rates(items: Sequence[WorkItem], num_output_tokens: int, elapsed_s: float) -> dict[str, float]:
    """The figures of requests that ran all at once. Raises PeerError if a token is missing."""
    wanted = sum(item.max_tokens for item in items)
    if num_output_tokens != wanted:
        raise PeerError(f"{num_output_tokens} tokens came of {wanted} that were asked for")
    return {
        OUTPUT_RATE: num_output_tokens / elapsed_s,
        PROMPT_RATE: sum(len(item.prompt_token_ids) for item in items) / elapsed_s,
    }


def shown(setting: Setting) -> str:
    """A setting for people."""
    return ", ".join(f"{name} {value}" for name, value in setting.items())
