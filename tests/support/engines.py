"""Engines over real runners, without files and processes around them."""

from octavo.config import SchedulingPolicy
from octavo.core.block_tables import BlockTables
from octavo.core.scheduler import Scheduler
from octavo.engine.loop import Engine
from octavo.models.model import Model
from support.backends import make_runner


def engine_over(model: Model, *, num_blocks: int, backend: str = "native") -> Engine:
    """An engine that computes in float32 with a model."""
    runner = make_runner(backend, model, num_blocks=num_blocks)
    scheduler = Scheduler(
        BlockTables(runner.num_blocks, runner.block_size),
        max_num_batched_tokens=512,
        max_num_seqs=64,
        max_model_len=num_blocks * runner.block_size,
        policy=SchedulingPolicy.FCFS,
        end_token_ids=frozenset(),
    )
    return Engine(
        scheduler,
        runner,
        vocab_size=model.spec.vocab_size,
        max_logprobs=5,
        max_num_queued_reqs=1000,
    )
