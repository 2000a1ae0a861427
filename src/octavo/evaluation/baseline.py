"""What users of a Hugging Face setup have today, and what they would have here: where a migration starts.

The setup is profiled as it is: static batches in the order of the requests, all of which are there at the start.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.evaluation.comparison.peers.peer import Job, PeerError
from octavo.evaluation.comparison.peers.script import call_script
from octavo.evaluation.percentiles import median
from octavo.evaluation.throughput import WorkItem

SCRIPT = "transformers_baseline.py"


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Key-value cache of a run."""

    peak_bytes: int
    """The most that was held at once."""
    token_share: float
    """Of what was held, the share with tokens that were still needed; mean over steps."""


@dataclass(frozen=True, slots=True)
class Experience:
    """What users see, and what it takes."""

    system: str
    first_token_s: float
    """Median over the requests, waiting for others included."""
    tokens_per_s_per_user: float
    """Median over the requests, from the first token to the last."""
    requests_per_min: float
    cache: CacheUse


def profile_transformers(python: Path, folder: Path, job: Job, batch_size: int) -> Experience:
    """Run all requests with the transformers of that interpreter, in its default cache. Raises PeerError."""
    found = call_script(python, SCRIPT, folder, job, {"batch": str(batch_size)}, {})
    return experience_of(job.items, batch_size, found)


def experience_of(
    items: Sequence[WorkItem], batch_size: int, found: Mapping[str, Any]
) -> Experience:
    """The figures of what the script has found. Raises PeerError if tokens are missing."""
    batches = [items[i : i + batch_size] for i in range(0, len(items), batch_size)]
    began = found["batches"][0]["start"]
    firsts, speeds, end = [], [], began
    for requests, batch in zip(batches, found["batches"], strict=True):
        times = batch["token_times"]
        if len(times) != max(item.max_tokens for item in requests):
            raise PeerError(f"{len(times)} steps came instead of those of the longest request")
        firsts += [times[0] - began] * len(requests)
        speeds += [
            (item.max_tokens - 1) / (times[item.max_tokens - 1] - times[0])
            for item in requests
            if item.max_tokens > 1
        ]
        end = times[-1]
    shares = [share for requests in batches for share in contiguous_shares(requests)]
    return Experience(
        system=f"transformers, batches of {batch_size}",
        first_token_s=median(firsts),
        tokens_per_s_per_user=median(speeds) if speeds else 0.0,
        requests_per_min=60 * len(items) / (end - began),
        cache=CacheUse(
            max(batch["cache_bytes"] for batch in found["batches"]), sum(shares) / len(shares)
        ),
    )


def contiguous_shares(requests: Sequence[WorkItem]) -> Iterator[float]:
    """For each step of a static batch, the share of its rectangular cache that holds tokens still needed.

    Every row is as long as the longest prompt and the steps so far, also those of requests that have ended.
    """
    longest = max(len(item.prompt_token_ids) for item in requests)
    for step in range(max(item.max_tokens for item in requests)):
        used = sum(len(item.prompt_token_ids) + step for item in requests if step < item.max_tokens)
        yield used / (len(requests) * (longest + step))


def experience_here(
    served: Mapping[str, Any], offline: Mapping[str, Any], bytes_per_token: int
) -> Experience:
    """The same figures from the reports of `octavo bench serve` and of `octavo bench throughput`. Raises PeerError."""
    if served["num_failed"] or served["num_short"]:
        raise PeerError(f"requests failed here: {served['failures']}")
    tpot = served["tpot_ms"]
    slots = offline["peak_blocks"] * offline["block_size"]
    return Experience(
        system="Octavo",
        first_token_s=served["ttft_ms"]["p50"] / 1000,
        tokens_per_s_per_user=1000 / tpot["p50"] if tpot else 0.0,
        requests_per_min=60 * served["requests_per_s"],
        cache=CacheUse(slots * bytes_per_token, 1 - offline["kv_waste_mean"]),
    )
