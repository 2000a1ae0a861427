"""All requests that have not ended, and where each of their sequences is: it follows, waits, or runs."""

from octavo.core.block_pool import IntegrityError
from octavo.core.block_tables import BlockTables
from octavo.core.events import Event, RequestEndEvent, SequenceEndEvent
from octavo.core.fair_share import FairShare
from octavo.core.prefix_reuse import PrefixReuse
from octavo.core.request import FinishReason, Request
from octavo.core.sequence import RankedSequences, Sequence, SequenceStatus
from octavo.core.speculation import Speculator
from octavo.core.step import SeqId
from octavo.core.tiers import Tiers
from octavo.errors import OctavoError


class OpenRequests:
    """The queues of a scheduler. Who ends is taken out of all of them, and gives back what it holds."""

    def __init__(
        self,
        tables: BlockTables,
        tiers: Tiers,
        prefixes: PrefixReuse,
        speculator: Speculator | None,
    ) -> None:
        self._tables = tables
        self._tiers = tiers
        self._prefixes = prefixes
        self._speculator = speculator
        self.requests: dict[str, Request] = {}
        self.sequences: dict[SeqId, Sequence] = {}
        """Of all open requests, those that have not ended."""
        self.uncalled = FairShare()
        """Requests whose turn has not come: nobody looks yet whether there is room for them."""
        self.waiting = RankedSequences()
        """For blocks or a seat."""
        self.running = RankedSequences()
        """Hold blocks, or are about to get some."""
        self._num_turns = 0

    def add(self, request: Request) -> None:
        """A request is accepted: the first of its sequences waits to be called, the others follow that one."""
        self.requests[request.request_id] = request
        self.sequences.update((sequence.seq_id, sequence) for sequence in request.sequences)
        self.uncalled.add(request)

    def call(self, better_than: int | None = None) -> bool:
        """Let the next request wait, behind all others of its class that wait. False: there is none, or none better."""
        request = self.uncalled.call(better_than)
        if request is None:
            return False
        for sequence in request.sequences:
            sequence.rank = sequence.rank._replace(turn=self._num_turns)
        self._num_turns += 1
        request.sequences[0].status = SequenceStatus.WAITING
        self.waiting.add(request.sequences[0])
        return True

    def next_waiting(self, place: int) -> Sequence | None:
        """Who waits behind the first `place`; None: nobody.

        Those of a better class whose turn has not come are called before: who is let in gives way to none that comes
        later in the same step. Where nobody is left, the next is called.
        """
        while place < len(self.waiting) and self.call(self.waiting[place].rank.priority):
            pass
        if place == len(self.waiting) and not self.call():
            return None
        return self.waiting[place]

    def run(self, sequence: Sequence) -> None:
        """From now on each step computes some of it."""
        sequence.status = SequenceStatus.RUNNING
        self.running.add(sequence)

    def finish(self, sequence: Sequence) -> None:
        """Free what a sequence holds, wherever it is in its life."""
        if sequence.status is SequenceStatus.RUNNING:
            self._prefixes.leave(sequence)
            self.running.remove(sequence)
        elif sequence.status is SequenceStatus.WAITING:
            self.waiting.remove(sequence)
        elif sequence.status is SequenceStatus.UNCALLED:
            self.uncalled.remove(sequence)
        self._tables.free(sequence.seq_id)
        self._tiers.forget(sequence)
        if self._speculator is not None:
            self._speculator.forget(sequence.seq_id)
        del self.sequences[sequence.seq_id]
        sequence.status = SequenceStatus.FINISHED

    def end_early(
        self, request: Request, reason: FinishReason, *, error: OctavoError | None = None
    ) -> list[Event]:
        """Finish what is left of a request."""
        events: list[Event] = []
        for sequence in request.sequences:
            if sequence.status is not SequenceStatus.FINISHED:
                self.finish(sequence)
                events.append(
                    SequenceEndEvent(request.request_id, sequence.rank.sample_index, reason)
                )
        events.append(self.close(request, error))
        return events

    def close(self, request: Request, error: OctavoError | None = None) -> RequestEndEvent:
        """All sequences of a request have ended: forget it."""
        self.uncalled.close(request)
        del self.requests[request.request_id]
        return RequestEndEvent(
            request.request_id,
            request.prompt_len,
            request.num_cached_tokens or 0,
            request.num_preemptions,
            request.num_recomputed_tokens,
            None if error is None else str(error),
            None if error is None else type(error).__name__,
        )

    def check_integrity(self) -> None:
        """Raise IntegrityError unless queues and tables agree. Between steps; O(N)."""
        self._tables.check_integrity()
        self._tiers.check_integrity(self.sequences.values())
        queues = ((self.running, SequenceStatus.RUNNING), (self.waiting, SequenceStatus.WAITING))
        for queue, status in queues:
            if [s.rank for s in queue] != sorted(s.rank for s in queue):
                raise IntegrityError(f"{status.value} sequences are not in order of rank")
        queued = {s.seq_id: status for queue, status in queues for s in queue}
        queued |= {s.seq_id: SequenceStatus.UNCALLED for s in self.uncalled.sequences}
        for sequence in self.sequences.values():
            if queued.pop(sequence.seq_id, SequenceStatus.FOLLOWING) is not sequence.status:
                raise IntegrityError(f"sequence {sequence.seq_id} is not where its status says")
            if self._tables.num_tokens(sequence.seq_id) != sequence.num_computed:
                raise IntegrityError(f"sequence {sequence.seq_id}: its table holds another length")
        if queued:
            raise IntegrityError(f"sequences {sorted(queued)} are queued, but not open")
