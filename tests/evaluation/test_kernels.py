from dataclasses import replace

import numpy as np
import pytest

from octavo.checkpoints.quants import QuantType
from octavo.evaluation.kernels import FORMATS, SCALE_PLACES, fits, formats_named, random_weights
from octavo.models.model import load_model
from octavo.models.spec import DecoderSpec
from support.text_model import text_model_folder


@pytest.fixture(scope="module")
def spec() -> DecoderSpec:
    """Of a model whose rows are whole blocks of 32, but for one matrix of 48 columns."""
    return load_model(text_model_folder()).spec


def test_every_type_of_a_file_has_a_format() -> None:
    assert {fmt.quant for fmt in FORMATS} == set(QuantType) - {
        QuantType.F16
    }  # is bfloat16 in memory


@pytest.mark.parametrize("quant", [*SCALE_PLACES, QuantType.F32, QuantType.BF16])
def test_made_up_weights_are_numbers(quant: QuantType, spec: DecoderSpec) -> None:
    wide = replace(spec, hidden_size=256, intermediate_size=256, head_dim=64)
    weights = random_weights(wide, quant)
    for weight in (weights["layers.0.gate"], weights["layers.1.down"], weights["embed"]):
        assert weight.quant is quant
        values = weight.to_float32()
        assert values.shape == weight.shape
        assert np.isfinite(values).all()
        assert 0 < np.abs(values).mean() < 1
    assert weights["layers.0.attn_norm"].quant is QuantType.F32


def test_a_format_needs_whole_blocks(spec: DecoderSpec) -> None:
    assert [fmt.name for fmt in FORMATS if fits(spec, fmt)] == ["float32", "bfloat16", "int8"]


def test_formats_by_name() -> None:
    assert [fmt.quant for fmt in formats_named(["q4_1", "BFLOAT16"])] == [
        QuantType.Q4_1,
        QuantType.BF16,
    ]
    with pytest.raises(KeyError, match="q9"):
        formats_named(["q9"])
