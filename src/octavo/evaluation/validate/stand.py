"""An engine to run loads on, and what its steps cost as the machine is now."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octavo.config import SchedulerConfig
from octavo.evaluation.comparison.probes import Conditions, Watch
from octavo.evaluation.replay import replay
from octavo.evaluation.step_profile import BATCHES, WatchedEngine, profile_steps, profile_wakes
from octavo.planning.costs import Fitted
from octavo.planning.figures import Figures, figures_of
from octavo.planning.fitting import fit_costs, relative_errors
from octavo.planning.paged import PagedBatcher
from octavo.planning.recorder import Recorder
from octavo.planning.requests import SimRequest
from octavo.planning.simulator import SimulatedMachine


@dataclass(frozen=True, slots=True)
class Profile:
    """What steps cost, and when."""

    costs: Fitted
    errors: Sequence[float]
    """(fitted - measured) / measured of each step."""
    conditions: Conditions


class Stand:
    """Measures and simulates. All that it measures is watched."""

    def __init__(self, watched: WatchedEngine, watch: Callable[[], Watch]) -> None:
        """`watch` begins to look at the machine."""
        self._watched = watched
        self._watch = watch

    def profile(self, seconds: float, seed: int) -> Profile:
        """Steps of made-up requests. `seconds` is for all sizes of batches; an engine that runs fewer takes less."""
        ready, watched = self._watched.ready, self._watched
        batches = [batch for batch in BATCHES if batch <= ready.max_num_seqs]
        watch = self._watch()
        steps = profile_steps(
            watched.engine, watched.keeper, watched.span, vocab_size=ready.vocab_size,
            max_model_len=ready.max_model_len, max_num_seqs=ready.max_num_seqs,
            seconds=seconds * len(batches) / len(BATCHES), seed=seed,
        )  # fmt: skip
        wakes = profile_wakes(
            watched.engine, watched.keeper, watched.span, vocab_size=ready.vocab_size, seed=seed
        )
        conditions = watch.end()
        costs = fit_costs(steps, wakes)
        return Profile(costs, relative_errors(costs, steps), conditions)

    def measure(self, requests: Sequence[SimRequest]) -> tuple[Figures, Conditions]:
        """What the engine makes of a load."""
        watched, vocab_size = self._watched, self._watched.ready.vocab_size
        known = [request.in_vocabulary(vocab_size) for request in requests]
        watch = self._watch()
        recorder = replay(watched.engine, watched.keeper, watched.span, known)
        return figures_of([recorder]), watch.end()

    def simulate(
        self, requests: Sequence[SimRequest], costs: Fitted, max_num_seqs: int | None = None
    ) -> Figures:
        """What the simulator makes of it; `max_num_seqs`: not the engine's."""
        ready = self._watched.ready
        batcher = PagedBatcher(
            self._watched.span,
            num_blocks=ready.num_blocks,
            block_size=ready.block_size,
            max_model_len=ready.max_model_len,
            limits=SchedulerConfig(
                ready.max_num_batched_tokens, max_num_seqs or ready.max_num_seqs
            ),
        )
        machine = SimulatedMachine(batcher, costs, Recorder())
        for request in requests:
            machine.offer(request)
        return figures_of([machine.run()])
