// Picks the function table of this processor.
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/kernel_table.h"

namespace octavo {
namespace {

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
}

SupportedKernels find_supported() {
  if (has_avx512()) return {{&avx512_kernels(), &avx2_kernels(), &generic_kernels()}, 3};
  if (has_avx2()) return {{&avx2_kernels(), &generic_kernels()}, 2};
  return {{&generic_kernels()}, 1};
}
#elif defined(__aarch64__)
bool has_dot_products() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }

bool has_i8mm_and_bf16() {
  const unsigned long both = HWCAP2_I8MM | HWCAP2_BF16;
  return has_dot_products() && (getauxval(AT_HWCAP2) & both) == both;
}

SupportedKernels find_supported() {
  if (has_i8mm_and_bf16()) return {{&neon_i8mm_kernels(), &neon_kernels(), &generic_kernels()}, 3};
  if (has_dot_products()) return {{&neon_kernels(), &generic_kernels()}, 2};
  return {{&generic_kernels()}, 1};
}
#endif

const KernelTable* choose() {
  const char* wanted = std::getenv("OCTAVO_ISA");
  if (wanted == nullptr || *wanted == '\0') return supported_kernels().tables[0];
  for (const KernelTable* table : supported_kernels()) {
    if (std::strcmp(table->name, wanted) == 0) return table;
  }
  return nullptr;
}

}  // namespace

const SupportedKernels& supported_kernels() {
  static const SupportedKernels supported = find_supported();
  return supported;
}

const KernelTable* kernels() {
  static const KernelTable* const chosen = choose();
  return chosen;
}

const char* supported_isas() {
  static const std::string names = [] {
    std::string joined;
    for (const KernelTable* table : supported_kernels()) {
      joined += (joined.empty() ? "" : ", ") + std::string(table->name);
    }
    return joined;
  }();
  return names.c_str();
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
