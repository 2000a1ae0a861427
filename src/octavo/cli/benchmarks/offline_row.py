"""What `octavo bench serve` compares a server with: the same work in one process, without HTTP, clients or streams."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from octavo.cli.terminal import progress_bar
from octavo.config import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.evaluation.throughput import WorkItem


@dataclass(frozen=True, slots=True)
class OfflineRow:
    """Throughput with clients, beside throughput without. Tokens per second."""

    served: float
    offline: float
    generator_share: float
    """CPU time of the clients, as a share of all cores: the server cannot have it."""

    @property
    def reachable(self) -> float:
        """What a front end that costs nothing would serve."""
        return self.offline * (1.0 - self.generator_share)

    def report(self) -> dict[str, Any]:
        """The figures, and the sentence that holds them all."""
        share = self.served / self.reachable
        return {
            "offline_output_tokens_per_s": self.offline,
            "served_share_of_offline": share,
            "served_against_offline": (
                f"{share:.1%}: {self.served:,.0f} tokens/s of {self.offline:,.0f} offline x "
                f"(1 - {self.generator_share:.1%} CPU of the load generator)"
            ),
        }


def offline_tokens_per_s(
    config: EngineConfig, items: "Sequence[WorkItem]", concurrency: int | None
) -> float:
    """Run the requests in this process, as many at once as there are clients, and give all of it back."""
    # The engine takes longer to import than the whole of `--help`.
    from octavo.engine.build import build_engine
    from octavo.evaluation.throughput import run_workload

    scheduler = config.scheduler
    most = min(scheduler.max_num_seqs, concurrency or len(items))
    config = replace(config, scheduler=replace(scheduler, max_num_seqs=most))
    with progress_bar() as progress:
        built = build_engine(
            config, progress=lambda stage, done: progress(f"offline: {stage}", done)
        )
        try:
            result = run_workload(
                built.engine,
                items,
                built.ready,
                lambda stage, done: progress(f"offline: {stage}", done),
            )
        finally:
            built.engine.close()
    return result.output_tokens_per_s
