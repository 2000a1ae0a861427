"""The grammars of open requests: compiled beside the steps, then one matcher for each sequence.

A matcher depends on the tokens that its sequence has generated and on nothing else, so neither preemption, nor the
prefix cache, nor what else is in the batch concerns it; parallel samples have one each from their first token on.
Masks are made between two steps, 5 microseconds each: during a step all cores compute it.
"""

import time
from array import array
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TypeAlias

from octavo.core.events import Event, RequestEndEvent, TokenEvent
from octavo.core.grammar import Grammar, GrammarCompiler, Matcher
from octavo.core.request import Request
from octavo.core.sampling_params import SamplingParams
from octavo.core.step import SeqId, SeqStep, StepPlan, StepResult
from octavo.errors import InvalidParameterError, OctavoError, UnsupportedParameterError, UserError

COMPILE_TIMEOUT_S = 10.0
"""A grammar that is not compiled by then is refused. Its thread ends soon after: the compiler has limits of its own."""
_NUM_THREADS = 2
IDLE_WAIT_S = 0.002
"""How long an engine that only waits for a grammar looks away from its messages."""

Add: TypeAlias = Callable[[Request], None]
"""What makes a scheduler accept a request."""


@dataclass(slots=True)
class _Pending:
    """A request whose grammar is not there yet."""

    request: Request
    add: Add
    grammar: "Future[Grammar]"
    deadline: float


class Grammars:
    """Compiles, makes masks for plans, and follows what was drawn."""

    def __init__(self, compiler: GrammarCompiler | None) -> None:
        """Without a compiler requests with a grammar are refused."""
        self._given = compiler
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="octavo-grammar")
        self._pending: dict[str, _Pending] = {}
        self._open: dict[str, dict[SeqId, Matcher]] = {}
        """Of each request, by its sequences in order."""
        self._matchers: dict[SeqId, Matcher] = {}
        self._failures: dict[int, str] = {}
        """Draws of the last plan whose matcher has met a limit."""

    @property
    def num_pending(self) -> int:
        """Requests that wait for their grammar."""
        return len(self._pending)

    def compile(self, params: SamplingParams) -> None:
        """Compile the grammar of these parameters, if they have one. Raises the UserError that says what is wrong."""
        if params.structured_outputs is not None:
            self._compiler().compile(params.structured_outputs)

    def check_new(self, request_id: str) -> None:
        """Raise InvalidParameterError if a request with this id waits for its grammar."""
        if request_id in self._pending:
            raise InvalidParameterError(
                f"request_id must be unique among open requests; given: {request_id}",
                parameter="request_id",
                value=request_id,
            )

    def take(self, request: Request, add: Add) -> None:
        """Hand a request with a grammar to the scheduler: now if the grammar is known, else when it is compiled.

        Raises what `add` raises.
        """
        params = request.params.structured_outputs
        assert params is not None
        compiler = self._compiler()
        known = compiler.find(params)
        if known is not None:
            self._open_with(request, known, add)
            return
        grammar = self._threads.submit(compiler.compile, params)
        deadline = time.monotonic() + COMPILE_TIMEOUT_S
        self._pending[request.request_id] = _Pending(request, add, grammar, deadline)

    def admit(self, *, wait_s: float = 0.0) -> list[Event]:
        """Hand over the requests whose grammar is there now. Returns the ends of those that are refused."""
        if not self._pending:
            return []
        if wait_s:
            wait([next(iter(self._pending.values())).grammar], timeout=wait_s)
        ends: list[Event] = []
        for name, pending in list(self._pending.items()):
            try:
                grammar = _result(pending)
                if grammar is not None:
                    del self._pending[name]
                    self._open_with(pending.request, grammar, pending.add)
            except UserError as error:
                self._pending.pop(name, None)
                ends.append(_end(pending.request, error))
        return ends

    def end(self, request_id: str, error: OctavoError | None = None) -> list[Event]:
        """End a request that waits for its grammar, aborted or with an error; of others: []."""
        pending = self._pending.pop(request_id, None)
        if pending is None:
            return []
        pending.grammar.cancel()
        return [_end(pending.request, error)]

    def masked(self, plan: StepPlan) -> StepPlan:
        """The plan with the masks of its draws."""
        self._failures = {}
        if not self._matchers:
            return plan
        places: list[list[int]] = []
        wanted: list[tuple[Matcher, array[int]]] = []
        num_draws = 0
        for step in plan.seqs:
            first, num_draws = num_draws, num_draws + step.num_draws
            for i, sampling in enumerate(step.sampling):
                matcher = self._matchers.get(sampling.seq_id)
                if matcher is not None:
                    places.append(list(range(first + i, num_draws, len(step.sampling))))
                    wanted.append((matcher, _guess(step)))
        masks: dict[int, bytes] = {}
        made = self._compiler().masks(wanted)
        for (matcher, _), draws, rows in zip(wanted, places, made, strict=True):
            if matcher.error is not None:
                self._failures.update(dict.fromkeys(draws, _too_complex(matcher.error)))
            masks.update(zip(draws, rows, strict=True))
        return replace(plan, masks=masks) if masks else plan

    def checked(self, result: StepResult) -> StepResult:
        """The result with an error for each draw of which no mask could be made."""
        if not self._failures:
            return result
        return replace(result, errors={**result.errors, **self._failures})

    def follow(self, events: Iterable[Event]) -> None:
        """Let each matcher go on by the tokens that its sequence has got, and forget those of ended requests."""
        if not self._open:
            return
        for event in events:
            matchers = self._open.get(event.request_id)
            if matchers is None:
                continue
            if isinstance(event, TokenEvent):
                first = next(iter(matchers))  # the sequences of a request have consecutive ids
                matchers[first + event.index].accept(event.token_id)
            elif isinstance(event, RequestEndEvent):
                for seq_id in self._open.pop(event.request_id):
                    del self._matchers[seq_id]

    def _compiler(self) -> GrammarCompiler:
        if self._given is None:
            raise UnsupportedParameterError(
                "structured_outputs is not supported by this engine",
                parameter="structured_outputs",
            )
        return self._given

    def _open_with(self, request: Request, grammar: Grammar, add: Add) -> None:
        """Each sequence of the request begins where the grammar does."""
        add(request)
        matchers = {sequence.seq_id: grammar.matcher() for sequence in request.sequences}
        self._open[request.request_id] = matchers
        self._matchers.update(matchers)

    def shutdown(self) -> None:
        """Give back the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _guess(step: SeqStep) -> "array[int]":
    return step.token_ids[len(step.token_ids) - step.num_drafts :]


def _result(pending: _Pending) -> Grammar | None:
    """The grammar; None: not yet. Raises UserError."""
    if pending.grammar.done():
        return pending.grammar.result()
    if time.monotonic() > pending.deadline:
        pending.grammar.cancel()
        raise InvalidParameterError(
            f"structured_outputs: the grammar is not compiled after {COMPILE_TIMEOUT_S:.0f} s; make it simpler",
            parameter="structured_outputs",
        )
    return None


def _end(request: Request, error: OctavoError | None) -> RequestEndEvent:
    if error is None:
        return RequestEndEvent(request.request_id, request.prompt_len, 0, 0)
    return RequestEndEvent(
        request.request_id,
        request.prompt_len,
        0,
        0,
        error=str(error),
        error_type=type(error).__name__,
        error_parameter=error.parameter if isinstance(error, UserError) else None,
    )


def _too_complex(reason: str) -> str:
    return f"the grammar of structured_outputs cannot be followed any further: {reason}"
