// Picks the function table of this processor.
#include <cpuid.h>

#include <cstdlib>
#include <cstring>

#include "kernels/kernel_table.h"

namespace octavo {
namespace {

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
}

const KernelTable* choose() {
  const char* wanted = std::getenv("OCTAVO_ISA");
  if (wanted == nullptr || *wanted == '\0') {
    return has_avx512() ? &avx512_kernels() : has_avx2() ? &avx2_kernels() : &generic_kernels();
  }
  if (std::strcmp(wanted, "generic") == 0) return &generic_kernels();
  if (std::strcmp(wanted, "avx2") == 0 && has_avx2()) return &avx2_kernels();
  if (std::strcmp(wanted, "avx512") == 0 && has_avx512()) return &avx512_kernels();
  return nullptr;
}

}  // namespace

const KernelTable* kernels() {
  static const KernelTable* const chosen = choose();
  return chosen;
}

const char* supported_isas() {
  return has_avx512() ? "avx512, avx2, generic" : has_avx2() ? "avx2, generic" : "generic";
}

int32_t attention_tokens_per_item(int32_t group, int32_t head_dim) {
  // About 32 KB of output rows, so that they stay in the first-level cache beside the tile.
  const int32_t tokens = 8192 / (group * head_dim);
  return tokens < 1 ? 1 : tokens;
}

int64_t attention_scratch_bytes(int64_t max_rows, int64_t head_dim) {
  const int64_t padded = (max_rows + 15) / 16 * 16;
  return (max_rows * 3 + 1) * head_dim * 4 + 6 * padded * 4 + 256;
}

}  // namespace octavo
