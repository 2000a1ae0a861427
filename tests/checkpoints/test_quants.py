"""Dequantization against the `gguf` package, to the bit."""

import gguf
import numpy as np
import pytest

from octavo.checkpoints.quants import QuantType, dequantize


@pytest.mark.parametrize("quant", QuantType)
@pytest.mark.parametrize("columns", [256, 768])
def test_dequantize_equals_gguf_on_random_bytes(quant: QuantType, columns: int) -> None:
    random = np.random.default_rng(quant.value)
    raw = random.integers(0, 256, (1500, quant.row_bytes(columns)), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(raw, gguf.GGMLQuantizationType(quant.value))
    values = dequantize(quant, raw)
    assert values.shape == (1500, columns)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("quant", QuantType)
def test_sizes_equal_gguf(quant: QuantType) -> None:
    expected = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(quant.value)]
    assert (quant.block_len, quant.block_bytes) == tuple(expected)
    assert gguf.GGMLQuantizationType(quant.value).name == quant.name


def test_rows_of_a_larger_array_are_read_without_their_neighbours() -> None:
    random = np.random.default_rng(0)
    raw = random.integers(0, 256, (6, 3, 68), dtype=np.uint8)
    part = raw[:, 1, :34]
    np.testing.assert_array_equal(
        dequantize(QuantType.Q8_0, part), dequantize(QuantType.Q8_0, part.copy())
    )


def test_part_of_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="33 bytes are not whole Q8_0 blocks of 34"):
        dequantize(QuantType.Q8_0, np.zeros((1, 33), np.uint8))
    with pytest.raises(ValueError, match="40 columns are not whole Q4_K blocks of 256"):
        QuantType.Q4_K.row_bytes(40)
