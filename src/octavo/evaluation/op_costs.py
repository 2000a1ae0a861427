"""What the ops of a step cannot do without: bytes to read and operations to compute, from spec and weights."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from octavo.core.step import StepPlan
from octavo.evaluation.peaks import Kind, Peaks, cache_kind, weight_kind
from octavo.evaluation.profiles import Profile
from octavo.models.footprint import block_bytes, weight_bytes
from octavo.models.spec import DecoderSpec
from octavo.models.weights import ModelWeights

LAYER_MATRICES: Mapping[str, tuple[str, ...]] = {
    "qkv": ("q", "k", "v"),
    "output": ("o",),
    "gate_up": ("gate", "up"),
    "down": ("down",),
}
"""The matrices of a layer by the op that multiplies with them."""
HEAD_OP = "head_logits"
ATTENTION_OP = "attention"


@dataclass(frozen=True, slots=True)
class OpCost:
    """The least that an op moves and computes in one step, all layers together."""

    num_bytes: int
    """Weights, or keys and values, read once each."""
    by_kind: Mapping[Kind, int]
    """Operations by what is multiplied; a multiplication and an addition count as two."""

    @property
    def operations(self) -> int:
        """Of all kinds."""
        return sum(self.by_kind.values())


@dataclass(frozen=True, slots=True)
class OpShare:
    """Where a step's time went: one op, all layers together."""

    op: str
    ms: float
    share: float
    """Of the whole step."""
    bytes_per_s: float | None
    """None where no cost is known."""
    bandwidth_share: float | None
    """Of the read bandwidth: 1 is as fast as its bytes can be read."""
    operations_per_s: float | None
    roofline_share: float | None
    """Of what bandwidth and arithmetic allow together: 1 is as fast as this machine can be."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """Costs of the steps of one model, in one mode."""

    spec: DecoderSpec
    weights: ModelWeights
    dtype: str
    kv_cache_dtype: str

    def matrices(self, op: str) -> list[str]:
        """Names of the weights that an op multiplies with."""
        if op == HEAD_OP:
            return ["embed" if self.spec.tied_head else "head"]
        layers = range(self.spec.num_layers)
        return [f"layers.{i}.{name}" for i in layers for name in LAYER_MATRICES[op]]

    def gemm(self, op: str, num_rows: int) -> OpCost:
        """The cost of multiplying `num_rows` rows."""
        if num_rows == 0:
            return OpCost(0, {})
        chosen = {name: self.weights[name] for name in self.matrices(op)}
        by_kind: Counter[Kind] = Counter()
        for weight in chosen.values():
            kind = weight_kind(weight, self.dtype)
            by_kind[kind] += 2 * num_rows * weight.shape[0] * weight.shape[1]
        return OpCost(weight_bytes(ModelWeights(chosen), self.dtype), by_kind)

    def attention(self, plan: StepPlan) -> OpCost:
        """The cost of attending: each key and value that a sequence's tokens may see is read once."""
        spec = self.spec
        layer_bytes = block_bytes(spec, 1, self.kv_cache_dtype) // spec.num_layers
        keys = attended = 0
        for layer in spec.layers:
            for seq in plan.seqs:
                end = seq.start + len(seq.token_ids)
                window = layer.window or end
                keys += end - max(0, seq.start + 1 - window)
                attended += sum(min(p + 1, window) for p in range(seq.start, end))
        operations = 4 * spec.num_heads * spec.head_dim * attended
        return OpCost(keys * layer_bytes, {cache_kind(self.kv_cache_dtype): operations})

    def step(self, plan: StepPlan) -> dict[str, OpCost]:
        """The costs of a step by op. Only rows from which something is drawn reach the head."""
        costs = {op: self.gemm(op, plan.num_tokens) for op in LAYER_MATRICES}
        costs[HEAD_OP] = self.gemm(HEAD_OP, sum(len(seq.draw_offsets) for seq in plan.seqs))
        costs[ATTENTION_OP] = self.attention(plan)
        return costs


def total_costs(steps: Sequence[Mapping[str, OpCost]]) -> dict[str, OpCost]:
    """Several steps together."""
    return {op: _total([step[op] for step in steps]) for op in steps[0]}


def op_shares(profile: Profile, costs: Mapping[str, OpCost], peaks: Peaks) -> list[OpShare]:
    """The ops, longest first, and last what no op accounts for (preparing the step, waking the threads)."""
    whole_s = profile.whole_s
    rows = [
        _op_share(op, seconds, whole_s, costs.get(op), peaks)
        for op, seconds in sorted(profile.op_seconds.items(), key=lambda item: -item[1])
    ]
    outside = whole_s - sum(profile.op_seconds.values())
    return [*rows, _op_share("(outside of ops)", outside, whole_s, None, peaks)]


def _total(costs: Sequence[OpCost]) -> OpCost:
    by_kind: Counter[Kind] = Counter()
    for cost in costs:
        by_kind.update(cost.by_kind)
    return OpCost(sum(cost.num_bytes for cost in costs), by_kind)


def _op_share(
    op: str, seconds: float, whole_s: float, cost: OpCost | None, peaks: Peaks
) -> OpShare:
    ms, share = seconds * 1000, seconds / whole_s
    if cost is None or seconds <= 0:
        return OpShare(op, ms, share, None, None, None, None)
    rate = cost.num_bytes / seconds
    least = peaks.least_seconds(cost.num_bytes, cost.by_kind)
    return OpShare(
        op, ms, share, rate, rate / peaks.read_bandwidth, cost.operations / seconds, least / seconds
    )
