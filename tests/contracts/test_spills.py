"""No inner loop of a kernel keeps vector registers on the stack: the compiler is checked, not trusted."""

import re
import subprocess
from pathlib import Path

import pytest

from support.spills import find_spills

ROOT = Path(__file__).parents[2]
TIERS = {
    "generic": ("-msse2",),
    "avx2": ("-mavx2", "-mfma"),
    "avx512": ("-mavx512f",),
}
ARRAYS = frozenset(("::peak_", "::log_sum_exp", "::tile_column"))
"""Functions with arrays on the stack by intent: what the peaks read, the tail of a row, the scales of a column."""
AVX2_SPILLS = frozenset(
    (
        "gemm_grouped",
        "softmax_tile",
        "int8_values_of_channels",
        "fp8_",
        r"scores_of_groups<\(octavo::KvFormat\)2",
        "quantize_chunks",
    )
)
"""Loops that need more than AVX2's 16 registers as they are: 16 floats take two. The tier is right, not fast."""
SAMPLE = """
typedef float V __attribute__((vector_size({size})));
extern "C" void sums(const V* x, V* out, long n) {{
  V a[{count}];
#pragma GCC unroll 64
  for (int j = 0; j < {count}; ++j) a[j] = out[j];  // equal ones would be one
  for (long i = 0; i < n; ++i) {{
    const V v = x[i];
#pragma GCC unroll 64
    for (int j = 0; j < {count}; ++j) a[j] = a[j] * v + v;
  }}
#pragma GCC unroll 64
  for (int j = 0; j < {count}; ++j) out[j] = a[j];
}}
"""


def compiled(folder: Path, tier: str, size: int, count: int) -> Path:
    """An object with a loop of so many accumulators, a vector of `size` bytes each."""
    source = folder / "sums.cc"
    source.write_text(SAMPLE.format(size=size, count=count))
    command = ["g++", "-O3", *TIERS[tier], "-c", str(source), "-o", str(folder / "sums.o")]
    subprocess.run(command, check=True)
    return folder / "sums.o"


@pytest.mark.parametrize(("tier", "size", "registers"), [("avx2", 32, 16), ("avx512", 64, 32)])
def test_too_many_accumulators_are_seen(
    tier: str, size: int, registers: int, tmp_path: Path
) -> None:
    assert not find_spills(compiled(tmp_path, tier, size, registers - 4))
    spills = find_spills(compiled(tmp_path, tier, size, registers + 8))
    assert {spill.function for spill in spills} == {"sums"}
    assert len(spills) >= 8


@pytest.mark.parametrize("tier", list(TIERS))
def test_kernels_stay_in_registers(tier: str) -> None:
    name = f"CMakeFiles/octavo_plan.dir/csrc/kernels/tier_{tier}.cc.o"
    objects = sorted((ROOT / "build").glob(f"cp*/{name}"))
    assert objects, "`make setup` leaves the compiled kernels in build/"
    newest = max(objects, key=lambda path: path.stat().st_mtime)
    allowed = re.compile("|".join(ARRAYS | (AVX2_SPILLS if tier == "avx2" else frozenset())))
    found = [s for s in find_spills(newest) if not allowed.search(s.function)]
    assert not found, "\n".join(f"{s.function} {s.address:x}: {s.text}" for s in found)
