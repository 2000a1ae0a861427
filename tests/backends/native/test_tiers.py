"""Every instruction set of this processor, each in a process of its own: right, the same in any chunks, and with the
same bits as the others where the kernels promise it."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from octavo import _C
from octavo.checkpoints.quants import QuantType
from octavo.models.model import load_model
from support.backends import make_runner, prompt_logits
from support.command import environment
from support.golden import SMOLLM2, GoldenCase, golden_cases
from support.tiny_gguf import write_gguf
from support.tiny_models import prompt, tiny_folder

TIERS = tuple(_C.supported_isas().split(", "))
PROMPTS = [prompt(n) for n in (1, 17, 140)]
CHUNKS = (7, 512)
MODES: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32", "kv_cache_dtype": "float32"},
    "auto": {"dtype": "auto", "kv_cache_dtype": "bfloat16"},
    "auto, float32 cache": {"dtype": "auto", "kv_cache_dtype": "float32"},
    "auto, int8 cache": {"dtype": "auto", "kv_cache_dtype": "int8"},
    "bfloat16": {"dtype": "bfloat16", "kv_cache_dtype": "bfloat16"},
}
SAME_BITS = ("float32", "auto, float32 cache", "auto, int8 cache")
"""Modes in which AVX2 and AVX-512 do the same operations; bfloat16 products round in AVX-512's own way."""
Logits = dict[str, NDArray[Any]]


def compute(
    tier: str, out: Path, model: Path, prompts: list[list[int]], modes: Any, chunks: Any
) -> Logits:
    job = {"model": str(model), "prompts": prompts, "modes": modes, "chunks": chunks}
    result = subprocess.run(
        [sys.executable, "-m", "support.tier_main", json.dumps(job), str(out)],
        env=environment({"OCTAVO_ISA": tier}),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    with np.load(out) as found:
        assert found["isa"] == tier
        return {name: found[name] for name in found}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with 4-bit matrices and an 8-bit embedding."""
    path = tmp_path_factory.mktemp("tiers") / "tiny.gguf"
    write_gguf(tiny_folder("llama"), path, QuantType.Q4_1, embedding_quant=QuantType.Q8_0)
    return path


@pytest.fixture(scope="module")
def logits_of(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Logits]:
    """What a tier makes of the prompts in every mode; computed once."""
    folder = tmp_path_factory.mktemp("logits")

    @cache
    def found(tier: str) -> Logits:
        return compute(tier, folder / f"{tier}.npz", model, PROMPTS, MODES, CHUNKS)

    return found


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_is_right(tier: str, logits_of: Callable[[str], Logits], model: Path) -> None:
    """float32 is the reference's; the others are near it."""
    found = logits_of(tier)
    reference = make_runner("reference", load_model(model), num_blocks=20)
    for i, token_ids in enumerate(PROMPTS):
        wanted = prompt_logits(reference, token_ids)
        np.testing.assert_allclose(found[f"float32/512/{i}"], wanted, atol=2e-4)
        for mode in MODES:
            assert divergence(wanted, found[f"{mode}/512/{i}"]) < 0.01, mode


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_s_bits_do_not_depend_on_chunks(
    tier: str, logits_of: Callable[[str], Logits]
) -> None:
    found = logits_of(tier)
    for mode in MODES:
        for i in range(len(PROMPTS)):
            assert found[f"{mode}/7/{i}"].tobytes() == found[f"{mode}/512/{i}"].tobytes(), mode


@pytest.mark.skipif("avx512" not in TIERS, reason="this processor has no AVX-512")
@pytest.mark.parametrize("mode", SAME_BITS)
def test_tiers_with_fused_multiply_add_have_the_same_bits(
    mode: str, logits_of: Callable[[str], Logits]
) -> None:
    for i in range(len(PROMPTS)):
        name = f"{mode}/512/{i}"
        assert logits_of("avx2")[name].tobytes() == logits_of("avx512")[name].tobytes()


@pytest.mark.parametrize("mode", MODES)
def test_tiers_differ_by_roundings_only(mode: str, logits_of: Callable[[str], Logits]) -> None:
    """Integer sums are equal; a float that rounds otherwise may move an activation to the next int8."""
    best, *others = (logits_of(tier) for tier in TIERS)
    for other in others:
        for i in range(len(PROMPTS)):
            name = f"{mode}/512/{i}"
            assert divergence(best[name], other[name]) < 1e-4


@pytest.mark.model
@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_gives_golden_answers(tier: str, smollm2_path: Path, tmp_path: Path) -> None:
    case = golden_cases(SMOLLM2)[0]
    steps = 12
    token_ids = case.prompt_token_ids + case.greedy_token_ids[: steps - 1]
    modes = {"float32": MODES["float32"]}
    found = compute(tier, tmp_path / "golden.npz", smollm2_path, [token_ids], modes, [512])
    short = GoldenCase(
        case.kind, case.prompt_token_ids, case.greedy_token_ids[:steps], case.top5_logprobs[:steps]
    )
    short.check_logits(found["float32/512/0"][len(case.prompt_token_ids) - 1 :])


@pytest.mark.long
@pytest.mark.parametrize("tier", TIERS)
def test_the_whole_suite_of_the_backends(tier: str) -> None:
    """But for the numpy reference, which has no instruction sets and takes the longest."""
    folder = Path(__file__).parents[1]
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--ignore",
            __file__,
            "--ignore",
            folder / "reference",
            "-k",
            "not reference",
            folder,
        ],
        env=environment({"OCTAVO_ISA": tier}),
        cwd=folder.parents[1],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout


def divergence(wanted: NDArray[Any], got: NDArray[Any]) -> float:
    """Mean KL over positions, in nat."""
    p, q = (x.astype(np.float64) - x.max(axis=1, keepdims=True) for x in (wanted, got))
    p, q = (x - np.log(np.exp(x).sum(axis=1, keepdims=True)) for x in (p, q))
    return float((np.exp(p) * (p - q)).sum(axis=1).mean())
