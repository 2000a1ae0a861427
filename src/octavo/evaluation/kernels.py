"""The matrix kernels, one weight format after another, in the shapes of a model.

The weights are made up, so that every format can be measured on every model. What is timed are whole ops, as a
step runs them: with what is fused to the multiplication, and with weights that no cache holds any more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import cast

import numpy as np
from numpy.typing import NDArray

from octavo.checkpoints.quants import QuantType
from octavo.config import EngineConfig
from octavo.evaluation.latency import Sequences
from octavo.evaluation.op_costs import HEAD_OP, LAYER_MATRICES, CostModel, OpCost
from octavo.evaluation.peaks import Kind, weight_kind
from octavo.evaluation.profiles import ProfiledRunner, profile_median
from octavo.evaluation.runners import opened_runner
from octavo.models.footprint import weight_bytes
from octavo.models.model import Model
from octavo.models.spec import DecoderSpec
from octavo.models.weights import ModelWeights, Weight, expected_shapes
from octavo.progress import Progress, silent

COLD_BYTES = 128 << 20
"""Layers are left out beyond this: no cache holds so much from one step to the next."""
SCALE_PLACES: Mapping[QuantType, tuple[int, ...]] = MappingProxyType({
    QuantType.Q4_0: (0,), QuantType.Q4_1: (0, 2), QuantType.Q5_0: (0,), QuantType.Q5_1: (0, 2),
    QuantType.Q8_0: (0,), QuantType.Q4_K: (0, 2), QuantType.Q5_K: (0, 2), QuantType.Q6_K: (208,),
})  # fmt: skip
"""Where a block has numbers in float16, in bytes; all other bits may be anything."""
_SCALE = np.float16(2.5e-4)
"""With it, no number of any type is above 2; the largest are those of the types whose blocks have scales within."""


@dataclass(frozen=True, slots=True)
class KernelFormat:
    """A form in which weights are held, by the type of the file and what the engine makes of it."""

    name: str
    quant: QuantType
    dtype: str
    quantization: str | None = None


FORMATS: tuple[KernelFormat, ...] = (
    KernelFormat("float32", QuantType.F32, "float32"),
    KernelFormat("bfloat16", QuantType.BF16, "auto"),
    KernelFormat("int8", QuantType.BF16, "auto", "int8"),
    *(KernelFormat(quant.name, quant, "auto") for quant in SCALE_PLACES),
)


@dataclass(frozen=True, slots=True)
class KernelRate:
    """One op of one layer (or the head) with `num_rows` rows of activations."""

    format: str
    op: str
    k: int
    """Inputs."""
    n: int
    """Outputs."""
    num_rows: int
    us: float
    bytes_per_s: float
    """Of weights."""
    operations_per_s: float
    kind: Kind
    """What it multiplies."""
    cost: OpCost
    seconds: float
    """Of all layers, as the cost."""


def formats_named(names: Sequence[str]) -> list[KernelFormat]:
    """The formats of these names, whatever their case. Raises KeyError with the first unknown one."""
    known = {fmt.name.lower(): fmt for fmt in FORMATS}
    return [known[name.lower()] for name in names]


def fits(spec: DecoderSpec, fmt: KernelFormat) -> bool:
    """Whether every matrix of the model can have this format: rows are whole blocks."""
    shapes = expected_shapes(spec).values()
    return all(shape[1] % fmt.quant.block_len == 0 for shape in shapes if len(shape) == 2)


def measure_kernels(
    config: EngineConfig,
    model: Model,
    formats: Sequence[KernelFormat],
    row_counts: Sequence[int],
    num_steps: int,
    progress: Progress = silent,
) -> list[KernelRate]:
    """Time each op in each of the formats, medians of `num_steps` steps. Needs the native backend."""
    found: list[KernelRate] = []
    for fmt in formats:
        made_up = replace(model, spec=_cold_spec(model.spec, fmt))
        made_up = replace(made_up, weights=random_weights(made_up.spec, fmt.quant))
        held = replace(config.model, dtype=fmt.dtype, quantization=fmt.quantization)
        of_format = replace(config, model=held)
        most = max(row_counts)
        with opened_runner(of_format, made_up, most, max_tokens=most) as (runner, resolved):
            costs = CostModel(
                made_up.spec, made_up.weights, resolved.dtype, resolved.kv_cache_dtype
            )
            profiled = cast(ProfiledRunner, runner)
            sequences = Sequences(
                most, 1, block_size=runner.block_size, vocab_size=made_up.spec.vocab_size
            )
            for i, num_rows in enumerate(row_counts):
                progress(fmt.name, i / len(row_counts))
                plan = sequences.decode_plan(num_rows, 1)
                runner.run(plan)  # warm up
                ops = profile_median(profiled, [plan] * num_steps)
                found += _rates(fmt, costs, num_rows, ops)
        progress(fmt.name, 1.0)
    return found


def random_weights(spec: DecoderSpec, quant: QuantType) -> ModelWeights:
    """Weights of a model, matrices in this type; those of all layers are one array."""
    source = np.random.default_rng(0)
    made: dict[tuple[int, ...], Weight] = {}
    weights = {}
    for name, shape in expected_shapes(spec).items():
        if shape not in made:
            kind = quant if len(shape) == 2 else QuantType.F32
            made[shape] = Weight(name, kind, shape, _random_rows(source, kind, shape))
        weights[name] = replace(made[shape], name=name)
    return ModelWeights(weights)


def _cold_spec(spec: DecoderSpec, fmt: KernelFormat) -> DecoderSpec:
    """The model with as many layers as it takes to be cold."""
    one = replace(spec, layers=spec.layers[:1])
    rows = {
        name: Weight(name, fmt.quant, shape, np.empty((0, 0), np.uint8))
        for name, shape in expected_shapes(one).items()
        if name.startswith("layers.")
    }
    enough = -(
        -COLD_BYTES // max(1, weight_bytes(ModelWeights(rows), fmt.quantization or fmt.dtype))
    )
    return replace(spec, layers=spec.layers[:enough])


def _rates(
    fmt: KernelFormat, costs: CostModel, num_rows: int, op_seconds: Mapping[str, float]
) -> Iterator[KernelRate]:
    for op in (*LAYER_MATRICES, HEAD_OP):
        names = costs.matrices(op)
        times = 1 if op == HEAD_OP else costs.spec.num_layers
        shapes = [costs.weights[name].shape for name in names[: len(names) // times]]
        cost: OpCost = costs.gemm(op, num_rows)
        seconds = op_seconds[op]
        yield KernelRate(
            format=fmt.name,
            op=op,
            k=shapes[0][1],
            n=sum(shape[0] for shape in shapes),
            num_rows=num_rows,
            us=seconds / times * 1e6,
            bytes_per_s=cost.num_bytes / seconds,
            operations_per_s=cost.operations / seconds,
            kind=weight_kind(costs.weights[names[0]], costs.dtype),
            cost=cost,
            seconds=seconds,
        )


def _random_rows(
    source: np.random.Generator, quant: QuantType, shape: tuple[int, ...]
) -> NDArray[np.uint8]:
    """Rows of a type, about as large as a model's own, uint8 [rows, row bytes]."""
    rows, columns = shape if len(shape) == 2 else (1, shape[0])
    if quant in SCALE_PLACES:
        data = source.integers(0, 256, (rows, quant.row_bytes(columns)), dtype=np.uint8)
        blocks = data.reshape(rows, -1, quant.block_bytes)
        for place in SCALE_PLACES[quant]:
            blocks[:, :, place : place + 2] = np.frombuffer(_SCALE.tobytes(), np.uint8)
        return data
    values: NDArray[np.float32] = source.standard_normal((rows, columns), np.float32)
    values /= np.float32(columns**0.5)
    if quant is QuantType.BF16:
        upper: NDArray[np.uint16] = (values.view(np.uint32) >> 16).astype(np.uint16)
        return upper.view(np.uint8)
    assert quant is QuantType.F32
    return values.view(np.uint8)
