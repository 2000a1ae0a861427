"""Collects a scheduler's events and holds it to their order."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from octavo.core.events import (
    Event,
    PooledEvent,
    PromptEvent,
    PromptLogprobsEvent,
    RequestEndEvent,
    SequenceEndEvent,
    TokenEvent,
)
from octavo.core.request import FinishReason
from octavo.core.step import TokenLogprobs


@dataclass
class Outcome:
    """What became of a request. The dicts are by sequence index."""

    token_ids: dict[int, list[int]] = field(default_factory=dict)
    finish_reasons: dict[int, FinishReason] = field(default_factory=dict)
    stop_reasons: dict[int, int] = field(default_factory=dict)
    num_cached_tokens: int | None = None
    """Once the prompt is computed."""
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    vector: "array[float] | None" = None
    end: RequestEndEvent | None = None


class EventLog:
    """Outcomes by request id. Asserts that each sequence and each request ends once, and says nothing after."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.ended: list[str] = []
        """Request ids in the order in which they ended."""

    def __getitem__(self, request_id: str) -> Outcome:
        return self.outcomes[request_id]

    def add(self, events: Iterable[Event]) -> None:
        """Take over what `commit` or `abort` returned."""
        for event in events:
            outcome = self.outcomes.setdefault(event.request_id, Outcome())
            assert outcome.end is None, f"after its end: {event}"
            self._apply(outcome, event)

    def _apply(self, outcome: Outcome, event: Event) -> None:
        if isinstance(event, RequestEndEvent):
            outcome.end = event
            self.ended.append(event.request_id)
        elif isinstance(event, PromptEvent):
            assert outcome.num_cached_tokens is None, f"a second time: {event}"
            outcome.num_cached_tokens = event.num_cached_tokens
        elif isinstance(event, PromptLogprobsEvent):
            assert outcome.num_cached_tokens is not None, f"before the prompt's end: {event}"
            assert outcome.prompt_logprobs is None, f"a second time: {event}"
            assert not outcome.token_ids, f"after a token: {event}"
            outcome.prompt_logprobs = event.values
        elif isinstance(event, PooledEvent):
            assert outcome.num_cached_tokens is not None, f"before the prompt's end: {event}"
            assert outcome.vector is None, f"a second time: {event}"
            assert not outcome.token_ids, f"after a token: {event}"
            outcome.vector = event.vector
        else:
            self._apply_to_sequence(outcome, event)

    def _apply_to_sequence(self, outcome: Outcome, event: TokenEvent | SequenceEndEvent) -> None:
        assert event.index not in outcome.finish_reasons, f"after the sequence's end: {event}"
        if event.finish_reason is not None:
            outcome.finish_reasons[event.index] = event.finish_reason
        if isinstance(event, TokenEvent):
            assert outcome.num_cached_tokens is not None, f"before the prompt's end: {event}"
            outcome.token_ids.setdefault(event.index, []).append(event.token_id)
            if event.stop_reason is not None:
                outcome.stop_reasons[event.index] = event.stop_reason
        else:
            assert event.finish_reason in (FinishReason.ABORT, FinishReason.ERROR), event
