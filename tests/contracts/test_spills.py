"""No inner loop of a kernel keeps vector registers on the stack: the compiler is checked, not trusted."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.spills import find_spills

ROOT = Path(__file__).parents[2]
CROSS_COMPILER = "aarch64-linux-gnu-g++"
X86_64 = {
    "generic": ("-msse2",),
    "avx2": ("-mavx2", "-mfma"),
    "avx512": ("-mavx512f",),
}
AARCH64 = {
    "neon": ("-march=armv8.2-a+dotprod",),
    "neon_i8mm": ("-march=armv8.2-a+dotprod+i8mm+bf16",),
}
TIERS = X86_64 | AARCH64
needs_cross_compiler = pytest.mark.skipif(
    shutil.which(CROSS_COMPILER) is None, reason=f"needs {CROSS_COMPILER} (make test-kernels-arm)"
)
ARRAYS = frozenset(("::peak_", "::log_sum_exp", "::tile_column"))
"""Functions with arrays on the stack by intent: what the peaks read, the tail of a row, the scales of a column."""
SPILLS: dict[str, tuple[str, ...]] = {
    # 16 registers, and 16 floats take two: weights beside two rows, cache of 8 bits beside two queries.
    "avx2": (
        "gemm_grouped",
        "grouped_panels",
        "int8_values_of_channels",
        "fp8_",
        "quantize_chunks",
    ),
    "neon_i8mm": ("fp8_",),
}
"""Loops that need more registers than the tier has. It is right there, not fast."""
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
    compiler = "g++" if tier in X86_64 else CROSS_COMPILER
    command = [compiler, "-O3", *TIERS[tier], "-c", str(source), "-o", str(folder / "sums.o")]
    subprocess.run(command, check=True)
    return folder / "sums.o"


@pytest.mark.parametrize(
    ("tier", "size", "registers"),
    [
        ("avx2", 32, 16),
        ("avx512", 64, 32),
        pytest.param("neon", 16, 32, marks=needs_cross_compiler),
    ],
)
def test_too_many_accumulators_are_seen(
    tier: str, size: int, registers: int, tmp_path: Path
) -> None:
    assert not find_spills(compiled(tmp_path, tier, size, registers - 4))
    spills = find_spills(compiled(tmp_path, tier, size, registers + 8))
    assert {spill.function for spill in spills} == {"sums"}
    assert len(spills) >= 8


@pytest.mark.parametrize(
    "tier", [*X86_64, *(pytest.param(tier, marks=needs_cross_compiler) for tier in AARCH64)]
)
def test_kernels_stay_in_registers(tier: str) -> None:
    name = f"CMakeFiles/octavo_plan.dir/csrc/kernels/tier_{tier}.cc.o"
    objects = sorted((ROOT / "build").glob(f"{'cp*' if tier in X86_64 else 'aarch64'}/{name}"))
    assert objects, "`make setup` and `make test-kernels-arm` leave the compiled kernels in build/"
    newest = max(objects, key=lambda path: path.stat().st_mtime)
    allowed = re.compile("|".join((*ARRAYS, *SPILLS.get(tier, ()))))
    found = [s for s in find_spills(newest) if not allowed.search(s.function)]
    assert not found, "\n".join(f"{s.function} {s.address:x}: {s.text}" for s in found)
