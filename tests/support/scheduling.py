"""Small schedulers and requests for tests, and what a request's answer has to be."""

from array import array
from collections.abc import Callable, Collection, Container

from octavo.config import SchedulingPolicy, SpeculationConfig
from octavo.core.block_tables import BlockTables
from octavo.core.costs import RestoreCosts
from octavo.core.events import RequestEndEvent
from octavo.core.request import FinishReason, Request, sample_seed
from octavo.core.sampling_params import SamplingParams
from octavo.core.scheduler import Scheduler
from octavo.core.step import Runner, Sample, StepPlan
from octavo.core.tiers import Tiers
from support.event_log import EventLog
from support.fake_runner import Choose, FakeRunner, hashed

END_TOKEN_ID = 0


class Rig:
    """A scheduler over a small pool, a fake runner over the same, and a log of what came out.

    After every step and every abort, blocks, tables and queues are checked whole.
    """

    def __init__(
        self,
        *,
        num_blocks: int = 100,
        block_size: int = 4,
        max_num_batched_tokens: int = 32,
        max_num_seqs: int = 8,
        max_model_len: int = 64,
        policy: SchedulingPolicy = SchedulingPolicy.FCFS,
        end_token_ids: Collection[int] = (END_TOKEN_ID,),
        choose: Choose = hashed,
        prefix_caching: bool = True,
        speculation: SpeculationConfig | None = None,
        costs: RestoreCosts | None = None,
        num_swap_slots: int = 0,
        stored: Container[bytes] | None = None,
        runner: Runner | None = None,
    ) -> None:
        """`stored`: keys of what an earlier run has left; None: nothing is. `runner`: None for a fake one."""
        self.max_model_len = max_model_len
        self.end_token_ids = end_token_ids
        self.tables = BlockTables(num_blocks, block_size)
        self.runner = runner or FakeRunner(num_blocks, block_size, choose=choose)
        self.tiers = Tiers(self.tables, costs, num_swap_slots=num_swap_slots, stored=stored)
        self.scheduler = Scheduler(
            self.tables,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            policy=policy,
            end_token_ids=frozenset(end_token_ids),
            prefix_caching=prefix_caching,
            speculation=speculation,
            tiers=self.tiers,
        )
        self.choose = choose
        self.log = EventLog()

    def step(self, between: Callable[[StepPlan], None] | None = None) -> StepPlan:
        """One step; `between` sees the plan after `schedule`, and may abort requests."""
        plan = self.scheduler.schedule()
        self.tables.check_integrity()
        for planned in plan.seqs:  # whoever was preempted after being planned holds nothing
            num_tokens = planned.start + len(planned.token_ids)
            assert self.tables.num_tokens(planned.seq_id) == num_tokens
            assert self.tables.blocks(planned.seq_id) == planned.block_table
        if between is not None:
            between(plan)
        self.log.add(self.scheduler.commit(plan, self.runner.run(plan)))
        self.check()
        return plan

    def run(self, max_steps: int = 10_000) -> list[StepPlan]:
        """Steps until nothing is open; fails if that takes more than `max_steps`."""
        plans: list[StepPlan] = []
        while self.scheduler.has_work:
            assert len(plans) < max_steps, "the scheduler makes no progress"
            plans.append(self.step())
        return plans

    def abort(self, request_id: str) -> None:
        """Abort, between steps or within one."""
        self.log.add(self.scheduler.abort(request_id))

    def abort_sequence(self, request_id: str, index: int) -> None:
        """Abort one sequence of a request, between steps or within one."""
        self.log.add(self.scheduler.abort_sequence(request_id, index))

    def check(self) -> None:
        """Books add up, and an idle scheduler holds nothing."""
        self.scheduler.check_integrity()
        usage = self.scheduler.usage()
        num_blocks = usage.num_blocks_free + usage.num_blocks_cached + usage.num_blocks_referenced
        assert num_blocks == usage.num_blocks_total
        assert usage.num_slots_used <= usage.num_slots_referenced
        if not self.scheduler.has_work:
            assert (self.scheduler.num_running, self.scheduler.num_waiting) == (0, 0)
            assert usage.num_blocks_referenced == 0
            assert (usage.num_slots_used, usage.num_blocks_saved_by_sharing) == (0, 0)

    def check_answer(self, request: Request) -> None:
        """The request has ended with what it would have got alone in an unbounded pool."""
        outcome = self.log[request.request_id]
        expected = expected_outputs(
            request,
            max_model_len=self.max_model_len,
            end_token_ids=self.end_token_ids,
            choose=self.choose,
        )
        assert outcome.token_ids == {index: tokens for index, (tokens, _) in expected.items()}
        assert outcome.finish_reasons == {index: reason for index, (_, reason) in expected.items()}
        assert outcome.end == RequestEndEvent(
            request.request_id,
            request.prompt_len,
            outcome.num_cached_tokens or 0,
            request.num_preemptions,
            request.num_recomputed_tokens,
        )


def make_request(
    request_id: str = "a",
    prompt: int | Collection[int] = 5,
    *,
    seed: int = 7,
    priority: int = 0,
    cache_salt: str = "",
    **params: object,
) -> Request:
    """A request with a prompt of these tokens, or of this many tokens 1, 2, 3, ..."""
    token_ids = range(1, prompt + 1) if isinstance(prompt, int) else prompt
    sampling = SamplingParams(**params)  # type: ignore[arg-type]  # keywords pass through as they are
    return Request(
        request_id,
        array("i", token_ids),
        sampling,
        seed,
        priority=priority,
        cache_salt=cache_salt,
    )


def expected_outputs(
    request: Request,
    *,
    max_model_len: int,
    end_token_ids: Collection[int],
    choose: Choose = hashed,
) -> dict[int, tuple[list[int], FinishReason]]:
    """What a `FakeRunner` answers to a request that runs alone, told without scheduler, blocks or steps."""
    return {
        index: _expected_output(request, index, max_model_len, end_token_ids, choose)
        for index in range(request.params.n)
    }


def _expected_output(
    request: Request,
    index: int,
    max_model_len: int,
    end_token_ids: Collection[int],
    choose: Choose,
) -> tuple[list[int], FinishReason]:
    params = request.params
    history = array("i", request.prompt_token_ids)
    outputs: list[int] = []
    while True:
        too_early = len(outputs) < params.min_tokens
        suppressed = (*end_token_ids, *params.stop_token_ids) if too_early else ()
        seed = sample_seed(request.seed, index)
        token_id = choose(
            history,
            Sample(0, params, seed, len(outputs), history, request.prompt_len, suppressed),
        )
        history.append(token_id)
        outputs.append(token_id)
        ends = set(params.stop_token_ids)
        if not params.ignore_eos:
            ends.update(end_token_ids)
        if token_id in ends and not too_early:
            return outputs, FinishReason.STOP
        if len(outputs) == params.max_tokens or len(history) == max_model_len:
            return outputs, FinishReason.LENGTH
