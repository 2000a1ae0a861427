// The kernels for AArch64 with dot products of bytes, an option of Armv8.2 (FEAT_DotProd).
// Compiled with the flags of this tier only; all in one static namespace.
#define OCTAVO_TIER_NEON 1
#define OCTAVO_TIER_NAME "neon"

#include <arm_neon.h>

#include "kernels/fp8.h"
#include "kernels/kernel_table.h"

namespace octavo {
namespace {
// clang-format off: the order matters
#include "kernels/simd.h"
#include "kernels/gemm_inl.h"
#include "kernels/gemm_dense_inl.h"
#include "kernels/gemm_int8_inl.h"
#include "kernels/rows_inl.h"
#include "kernels/attention_cache_inl.h"
#include "kernels/attention_fp8_inl.h"
#include "kernels/attention_inl.h"
#include "kernels/peaks_inl.h"
#include "kernels/table_inl.h"
// clang-format on
}  // namespace

const KernelTable& neon_kernels() { return kTable; }

}  // namespace octavo
