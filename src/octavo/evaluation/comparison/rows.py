"""What is compared: the rows of the table, and who is set against whom in each."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from octavo.errors import ConfigError
from octavo.evaluation.comparison.peers.octavo import BF16, GGUF, WEIGHTS
from octavo.evaluation.comparison.peers.peer import Setting
from octavo.evaluation.comparison.works import PREFILL, Offline, Serving, Starting, Work
from octavo.evaluation.throughput import WorkItem, read_workload

SMOLLM2, GEMMA3 = "smollm2", "gemma3-270m"
_TOKEN_IDS = (1000, 40_000)
"""Made-up prompts are of these: ordinary tokens in the vocabularies of both models."""


@dataclass(frozen=True, slots=True)
class Ours:
    """One way to run Octavo."""

    label: str
    setting: Setting


@dataclass(frozen=True, slots=True)
class Pairing:
    """One of ours against one peer."""

    ours: Ours
    peer: str
    at_least: Mapping[str, float] = field(default_factory=dict)
    """How many times better we want to be, by figure."""


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of work on one model."""

    name: str
    title: str
    model: str
    work: Work
    items: tuple[WorkItem, ...]
    pairings: tuple[Pairing, ...]

    def pairings_with(self, peer: str) -> tuple[Pairing, ...]:
        """Those of one peer."""
        return tuple(pairing for pairing in self.pairings if pairing.peer == peer)

    @property
    def peers(self) -> tuple[str, ...]:
        """Each once, in order."""
        return tuple(dict.fromkeys(pairing.peer for pairing in self.pairings))


Q4 = Ours("Q4_1, bf16 KV", {WEIGHTS: GGUF})
Q4_INT8_KV = Ours("Q4_1, int8 KV", {WEIGHTS: GGUF, "--kv-cache-dtype": "int8"})
BF16_WEIGHTS = Ours("bf16, bf16 KV", {WEIGHTS: BF16})
INT8_WEIGHTS = Ours("int8 per channel, bf16 KV", {WEIGHTS: BF16, "--quantization": "int8"})
Q4_K_M = Ours("Q4_K_M, bf16 KV", {WEIGHTS: GGUF})

_OUTPUT, _PROMPT = "output_tokens_per_s", "prompt_tokens_per_s"
_FIRST = "first_token_p50_ms"


def all_rows(workloads: Path) -> tuple[Row, ...]:
    """Every row, cheap ones first. Raises ConfigError if a workload is missing."""
    sharegpt = tuple(read_workload(workloads / "sharegpt64.jsonl"))
    alpaca = tuple(read_workload(workloads / "alpaca128.jsonl"))
    return (
        Row("start", "Start of a server to its first token", SMOLLM2, Starting(), made_up(1, 16, 1),
            (Pairing(Q4, "llama.cpp"), Pairing(BF16_WEIGHTS, "vllm"))),
        Row("one-stream", "One stream, 16 + 256 tokens", SMOLLM2, Offline(), made_up(1, 16, 256),
            (Pairing(Q4, "llama.cpp", {_OUTPUT: 2.6}), Pairing(Q4, "openvino"),
             Pairing(BF16_WEIGHTS, "vllm", {_OUTPUT: 2.0}))),
        Row("prefill", "Prompts, 16 x 1024 tokens", SMOLLM2, PREFILL, made_up(16, 1024, 1),
            (Pairing(Q4, "openvino", {_PROMPT: 1.4}), Pairing(INT8_WEIGHTS, "openvino", {_PROMPT: 2.0}),
             Pairing(Q4, "llama.cpp"), Pairing(BF16_WEIGHTS, "vllm"))),
        Row("alpaca128", "alpaca128, all at once", SMOLLM2, Offline(), alpaca,
            (Pairing(Q4, "openvino"),)),
        Row("gemma-1", "Gemma 3 270M, one stream", GEMMA3, Offline(), made_up(1, 16, 128),
            (Pairing(Q4_K_M, "llama.cpp", {_OUTPUT: 1.7}),)),
        Row("gemma-32", "Gemma 3 270M, 32 streams", GEMMA3, Offline(), made_up(32, 16, 128),
            (Pairing(Q4_K_M, "llama.cpp", {_OUTPUT: 3.0}),)),
        Row("server64", "Server, 64 streaming clients (sharegpt64)", SMOLLM2, Serving(), sharegpt,
            (Pairing(Q4, "llama.cpp", {_FIRST: 1.0}), Pairing(BF16_WEIGHTS, "vllm", {_FIRST: 1.0}))),
        Row("sharegpt64", "sharegpt64, all at once", SMOLLM2, Offline(), sharegpt,
            (Pairing(Q4, "openvino", {_OUTPUT: 2.9}), Pairing(Q4_INT8_KV, "openvino", {_OUTPUT: 3.5}),
             Pairing(Q4, "llama.cpp", {_OUTPUT: 7.5}), Pairing(BF16_WEIGHTS, "vllm", {_OUTPUT: 3.5}),
             Pairing(Q4, "transformers", {_OUTPUT: 24.0}),
             Pairing(BF16_WEIGHTS, "transformers", {_OUTPUT: 15.0}))),
    )  # fmt: skip


def rows_named(rows: Sequence[Row], names: Sequence[str]) -> tuple[Row, ...]:
    """The rows of these names. Raises ConfigError."""
    known = {row.name: row for row in rows}
    for name in names:
        if name not in known:
            raise ConfigError(f"--rows takes {', '.join(known)}; given: {name}")
    return tuple(known[name] for name in dict.fromkeys(names))


def made_up(count: int, prompt_len: int, max_tokens: int, seed: int = 0) -> tuple[WorkItem, ...]:
    """Requests of random ordinary tokens, always the same."""
    source = random.Random(seed)
    return tuple(
        WorkItem(f"made-up-{i}", tuple(source.randrange(*_TOKEN_IDS) for _ in range(prompt_len)), max_tokens)
        for i in range(count)
    )  # fmt: skip


def warm_up(
    items: Sequence[WorkItem], count: int = 4, max_tokens: int = 16
) -> tuple[WorkItem, ...]:
    """Requests as long as the first of these, of other tokens: nothing of the run is computed before it."""
    found = []
    for i, item in enumerate(items[:count]):
        (other,) = made_up(1, len(item.prompt_token_ids), min(item.max_tokens, max_tokens), 1 + i)
        found.append(replace(other, id=f"warm-up-{i}"))
    return tuple(found)
