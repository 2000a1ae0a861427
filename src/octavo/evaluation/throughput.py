"""Throughput of a workload: all requests submitted at once, greedy, end tokens ignored."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.core.sampling_params import SamplingParams
from octavo.engine.loop import Engine
from octavo.engine.messages import EngineStats, Ready, Submit
from octavo.engine.named_errors import error_named
from octavo.engine.prompts import token_id_array
from octavo.errors import ConfigError
from octavo.evaluation.json_lines import read_json_lines
from octavo.progress import Progress, silent

WARM_UP_REQUESTS = 4
WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One request of a workload."""

    id: str
    prompt_token_ids: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Throughput:
    """What a run came to. Only useful tokens count."""

    num_requests: int
    num_prompt_tokens: int
    num_output_tokens: int
    elapsed_s: float
    kv_waste_mean: float
    """Share of allocated page slots that hold no token, averaged over steps."""
    num_preemptions: int
    num_steps: int
    peak_blocks: int
    """The most that were allocated at once."""
    peak_blocks_saved: int
    """The most that sharing saved at once."""
    num_block_copies: int

    @property
    def output_tokens_per_s(self) -> float:
        """Generated tokens per second, over the whole run."""
        return self.num_output_tokens / self.elapsed_s

    @property
    def prompt_tokens_per_s(self) -> float:
        """Prompt tokens per second, over the whole run."""
        return self.num_prompt_tokens / self.elapsed_s


def read_workload(path: Path) -> list[WorkItem]:
    """JSON lines {"id", "prompt_token_ids", "max_tokens"}. Raises ConfigError naming the line."""

    def item(entry: dict[str, Any]) -> WorkItem:
        token_ids = tuple(map(int, entry["prompt_token_ids"]))
        return WorkItem(str(entry["id"]), token_ids, int(entry["max_tokens"]))

    return read_json_lines(path, "request", item)


def run_workload(
    engine: Engine,
    items: Sequence[WorkItem],
    ready: Ready,
    progress: Progress = silent,
) -> Throughput:
    """Warm up on other prompts, then run all items at once.

    Raises ConfigError if one does not fit into the context (it would end early and count as less work), and
    what a request fails with.
    """
    for item in items:
        if len(item.prompt_token_ids) + item.max_tokens > ready.max_model_len:
            raise ConfigError(
                f"request {item.id}: {len(item.prompt_token_ids)} prompt tokens and max_tokens "
                f"{item.max_tokens} do not fit into {ready.max_model_len} (--max-model-len)"
            )
    progress("warming up", 0.0)
    _run(engine, _warm_up(items, ready.vocab_size), lambda _done: None)
    engine.reset_prefix_cache()
    progress("warming up", 1.0)
    before = engine.stats
    total = sum(item.max_tokens for item in items)
    start = time.perf_counter()
    done = _run(engine, items, lambda done: progress("running", done / total))
    elapsed = time.perf_counter() - start
    return _throughput(items, done, elapsed, before, engine.stats)


@dataclass(slots=True)
class _Done:
    num_tokens: int = 0
    peak_blocks: int = 0
    peak_blocks_saved: int = 0


def _run(engine: Engine, items: Sequence[WorkItem], count: Callable[[int], None]) -> _Done:
    """Submit all, step until all have ended."""
    for item in items:
        params = SamplingParams(temperature=0.0, max_tokens=item.max_tokens, ignore_eos=True)
        token_ids = token_id_array(item.prompt_token_ids).tobytes()
        engine.submit(Submit(item.id, token_ids, params, seed=0))
    done = _Done()
    while engine.has_work:
        outputs = engine.step()
        done.num_tokens += sum(len(output.token_ids) for output in outputs.sequences)
        done.peak_blocks = max(done.peak_blocks, outputs.stats.num_blocks_referenced)
        saved = outputs.stats.num_blocks_saved_by_sharing
        done.peak_blocks_saved = max(done.peak_blocks_saved, saved)
        count(done.num_tokens)
        for end in outputs.ends:
            if end.error is not None:
                raise error_named(end.error_type, f"request {end.request_id}: {end.error}")
    return done


def _warm_up(items: Sequence[WorkItem], vocab_size: int) -> list[WorkItem]:
    """Prompts of the same lengths and other tokens, so that nothing of the run itself is computed before it."""
    return [
        WorkItem(
            f"warm-up-{item.id}",
            tuple(vocab_size - 1 - token_id for token_id in item.prompt_token_ids),
            min(item.max_tokens, WARM_UP_TOKENS),
        )
        for item in items[:WARM_UP_REQUESTS]
    ]


def _throughput(
    items: Sequence[WorkItem],
    done: _Done,
    elapsed_s: float,
    before: EngineStats,
    after: EngineStats,
) -> Throughput:
    num_steps = after.num_steps - before.num_steps
    return Throughput(
        num_requests=len(items),
        num_prompt_tokens=sum(len(item.prompt_token_ids) for item in items),
        num_output_tokens=done.num_tokens,
        elapsed_s=elapsed_s,
        kv_waste_mean=(after.kv_waste_sum - before.kv_waste_sum) / num_steps,
        num_preemptions=after.num_preemptions - before.num_preemptions,
        num_steps=num_steps,
        peak_blocks=done.peak_blocks,
        peak_blocks_saved=done.peak_blocks_saved,
        num_block_copies=after.num_block_copies - before.num_block_copies,
    )
