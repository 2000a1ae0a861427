// The kernels for AArch64 with mixed dot products of bytes and with bfloat16, both part of Armv8.6
// (FEAT_I8MM, FEAT_BF16).
// Compiled with the flags of this tier only; all in one static namespace.
#define OCTAVO_TIER_NEON 1
#define OCTAVO_TIER_NAME "neon_i8mm"

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

const KernelTable& neon_i8mm_kernels() { return kTable; }

}  // namespace octavo
