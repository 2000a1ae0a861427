// What the instruction sets have in common. Integer work gives the same bits on every tier. AVX2
// and AVX-512 also share every bit of float work, since both have fused multiply-adds and add in
// the same order, except where bfloat16 pairs are multiplied: that instruction rounds in its own
// way. The generic tier has no fused multiply-add, so its floats differ in the last bits; the other
// tests hold each tier to the same bounds.
#include <algorithm>
#include <cmath>

#include "kernels/kernel_table.h"
#include "plan/acts.h"
#include "plan/linear.h"
#include "tests/check.h"

namespace octavo::test {
namespace {

enum class Among { kEveryTier, kFusedTiers };
using enum Among;

// Calls body(table) for each tier that this processor has, and compares all results with the
// best's.
template <class Body>
void check_same_bits(const char* what, Among tiers, Body body) {
  const KernelTable& best = *supported_kernels().tables[0];
  const std::vector<uint8_t> wanted = body(best);
  for (const KernelTable* table : supported_kernels()) {
    if (tiers == kFusedTiers && table == &generic_kernels()) continue;
    const std::vector<uint8_t> got = body(*table);
    CHECK(!got.empty() && got == wanted, "%s: %s and %s differ", what, table->name, best.name);
  }
}
constexpr int kRows = 4;

template <class T>
void append(std::vector<uint8_t>* bytes, const T* data, int64_t n) {
  const uint8_t* p = reinterpret_cast<const uint8_t*>(data);
  bytes->insert(bytes->end(), p, p + n * static_cast<int64_t>(sizeof(T)));
}

std::vector<float> random_row(Random& random, int64_t n, float range) {
  std::vector<float> x(n);
  for (float& v : x) v = uniform(random, -range, range);
  return x;
}

// A matrix of 32 columns with random file bytes and sensible scales.
struct Matrix {
  Matrix(QuantType type, int64_t k, Random& random)
      : pool(1), linear(k, {packed_format(type)}, &arena) {
    std::vector<uint8_t> rows(32 * row_bytes(type, k));
    for (uint8_t& b : rows) b = static_cast<uint8_t>(integer(random, 0, 255));
    const bool k_block =
        type == QuantType::kQ4_K || type == QuantType::kQ5_K || type == QuantType::kQ6_K;
    const int64_t block = row_bytes(type, k_block ? 256 : 32);
    for (size_t at = 0; at < rows.size(); at += block) {
      for (int64_t half : {int64_t{type == QuantType::kQ6_K ? 208 : 0}, int64_t{2}}) {
        const uint16_t h = float_to_half(uniform(random, 0.001f, 0.1f));
        if (half == 0 || half == 208 || type == QuantType::kQ4_1 || type == QuantType::kQ4_K ||
            type == QuantType::kQ5_1 || type == QuantType::kQ5_K) {
          std::memcpy(&rows[at + half], &h, 2);
        }
      }
    }
    linear.pack(type, rows.data(), 32, {32, 0, 0, 1}, pool);
  }
  ThreadPool pool;
  Arena arena;
  Linear linear;
};

constexpr QuantType kQuantized[] = {QuantType::kQ4_0, QuantType::kQ4_1, QuantType::kQ5_0,
                                    QuantType::kQ5_1, QuantType::kQ8_0, QuantType::kQ4_K,
                                    QuantType::kQ5_K, QuantType::kQ6_K};

// `rows` rows times the first tile, as many at once as the tier's kernel takes.
std::vector<float> multiply(const KernelTable& table, const Linear& linear, const Acts& acts,
                            int rows) {
  const Linear::Tile& tile = linear.tile(0);
  std::vector<float> out(rows * kTileCols);
  for (int row = 0; row < rows;) {
    const int count = std::min(table.max_rows(tile.format), rows - row);
    table.gemm[static_cast<int>(tile.format)][count - 1](acts.view(), row, tile.data, {},
                                                         &out[row * kTileCols]);
    row += count;
  }
  return out;
}

std::vector<uint8_t> products(const KernelTable& table, const Linear& linear, const Acts& acts) {
  const Linear::Tile& tile = linear.tile(0);
  std::vector<uint8_t> bytes;
  for (int rows = 1; rows <= kRows; ++rows) {
    std::vector<float> out = multiply(table, linear, acts, rows);
    append(&bytes, out.data(), rows * kTileCols);
    if (table.add_outliers[static_cast<int>(tile.format)] == nullptr) continue;
    const Outlier outliers[] = {{0, 17.25f}, {0, -9.1f}};
    const OutlierColumn columns[] = {{3, 0, 1}, {31, 1, 2}};
    table.add_outliers[static_cast<int>(tile.format)](tile.data, columns, 2, outliers, out.data());
    append(&bytes, out.data(), kTileCols);
  }
  return bytes;
}

Acts activations(int64_t k, ActFormat format, Random& random) {
  Acts acts(kRows, k, format, kHeadOutlierShare);
  const std::vector<float> x = random_row(random, kRows * k, 2.0f);
  kernels()->store_acts(format, x.data(), kRows * k / kGroup, acts.buffer(), 0, 1);
  return acts;
}

struct Attended {
  std::vector<uint8_t> cache, out;
};
Attended attended(const KernelTable& table, KvFormat format) {
  constexpr int32_t kBlock = 16, kDim = 48, kLength = 530, kGroupSize = 3;
  Random random(8);
  const int64_t block_bytes = kv_head_bytes(format, kDim, kBlock);
  std::vector<int32_t> blocks((kLength + kBlock - 1) / kBlock);
  for (size_t i = 0; i < blocks.size(); ++i)
    blocks[i] = static_cast<int32_t>(blocks.size() - 1 - i);
  Aligned<uint8_t> memory(static_cast<int64_t>(blocks.size()) * block_bytes);
  const KvLayer kv{memory.get(), block_bytes, block_bytes, kBlock, kDim, format};
  for (int32_t t = 0; t < kLength; ++t) {
    const std::vector<float> key = random_row(random, kDim, 1.0f),
                             value = random_row(random, kDim, 1.0f);
    table.write_kv(kv, blocks[t / kBlock], t % kBlock, 0, key.data(), value.data());
  }
  const std::vector<float> q = random_row(random, kGroupSize * kDim, 1.0f);
  std::vector<float> out(kGroupSize * kDim);
  Aligned<uint8_t> scratch(attention_scratch_bytes(kGroupSize, kDim));
  table.attention({kv, blocks.data(), 0, kLength - 1, 1, kGroupSize, 400, q.data(),
                   kGroupSize * kDim, out.data(), kGroupSize * kDim, scratch.get()});
  Attended found;
  append(&found.cache, memory.get(), memory.size());
  append(&found.out, out.data(), kGroupSize * kDim);
  return found;
}

}  // namespace

TEST(every_tier_quantizes_activations_alike) {
  Random random(1);
  std::vector<float> x = random_row(random, 32 * 400, 1.0f);
  for (size_t chunk = 0; chunk < 400; chunk += 3) x[chunk * 32 + chunk % 32] *= 9.0f;
  std::fill(x.begin() + 64, x.begin() + 96, 0.0f);
  check_same_bits("int8 activations", kEveryTier, [&](const KernelTable& table) {
    Acts acts(1, static_cast<int64_t>(x.size()), ActFormat::kQ8, kHeadOutlierShare);
    const ActBuffer& b = acts.buffer();
    table.store_acts(ActFormat::kQ8, x.data(), 400, b, 0, 1);
    std::vector<uint8_t> bytes;
    append(&bytes, b.q, 32 * 400);
    append(&bytes, b.scale, 400);
    append(&bytes, b.sum, 400);
    append(&bytes, b.sum16, 800);
    append(&bytes, b.outlier, 400);
    append(&bytes, b.outlier_at, 400);
    return bytes;
  });
  check_same_bits("bfloat16 activations", kEveryTier, [&](const KernelTable& table) {
    Acts acts(1, static_cast<int64_t>(x.size()), ActFormat::kBf16, kHeadOutlierShare);
    table.store_acts(ActFormat::kBf16, x.data(), 400, acts.buffer(), 0, 1);
    std::vector<uint8_t> bytes;
    append(&bytes, acts.view().bf16, 32 * 400);
    return bytes;
  });
}

TEST(every_tier_writes_the_same_cache) {
  for (KvFormat format : {KvFormat::kF32, KvFormat::kBf16, KvFormat::kInt8, KvFormat::kFp8}) {
    check_same_bits("the cache", kEveryTier,
                    [&](const KernelTable& table) { return attended(table, format).cache; });
  }
}

TEST(every_tier_has_the_same_integer_products) {
  // One group without a minimum rounds once, in the product of its integer sum and its scales.
  Random random(2);
  for (QuantType type : {QuantType::kQ8_0, QuantType::kQ5_0}) {
    const Matrix matrix(type, 32, random);
    const Acts acts = activations(32, ActFormat::kQ8, random);
    check_same_bits("one group", kEveryTier, [&](const KernelTable& table) {
      const std::vector<float> out = multiply(table, matrix.linear, acts, kRows);
      std::vector<uint8_t> bytes;
      append(&bytes, out.data(), kRows * kTileCols);
      return bytes;
    });
  }
  for (QuantType type : kQuantized) {
    const Matrix matrix(type, 256, random);
    check_same_bits("columns of a tile", kEveryTier, [&](const KernelTable& table) {
      std::vector<float> column(256);
      std::vector<uint8_t> bytes;
      for (int c = 0; c < kTileCols; ++c) {
        table.tile_column(packed_format(type), matrix.linear.tile(0).data, 256, c, column.data());
        append(&bytes, column.data(), 256);
      }
      return bytes;
    });
  }
}

TEST(tiers_with_fused_multiply_add_share_every_bit) {
  Random random(3);
  for (QuantType type : kQuantized) {
    const Matrix matrix(type, 512, random);
    const Acts acts = activations(512, ActFormat::kQ8, random);
    check_same_bits("a quantized product", kFusedTiers,
                    [&](const KernelTable& table) { return products(table, matrix.linear, acts); });
  }
  for (KvFormat format : {KvFormat::kF32, KvFormat::kInt8}) {
    check_same_bits("attention", kFusedTiers,
                    [&](const KernelTable& table) { return attended(table, format).out; });
  }
  const std::vector<float> x = random_row(random, 1040, 5.0f), y = random_row(random, 1040, 2.0f);
  check_same_bits("work on rows", kFusedTiers, [&](const KernelTable& table) {
    std::vector<float> out(1040);
    std::vector<uint8_t> bytes;
    table.rms_norm(x.data(), y.data(), 1e-6f, 1040, 1040, out.data());
    append(&bytes, out.data(), 1040);
    for (Activation kind : {Activation::kSilu, Activation::kGeluTanh}) {
      table.gate(kind, x.data(), y.data(), 32, out.data());
      append(&bytes, out.data(), kTileCols);
    }
    out = x;
    table.rope(out.data(), y.data(), y.data() + 300, 300);
    append(&bytes, out.data(), 1040);
    table.exp_scaled(x.data(), 5.0f, 1.3f, 1040, out.data());
    append(&bytes, out.data(), 1040);
    const double sum = table.log_sum_exp(x.data(), 1037, 5.0f);
    append(&bytes, &sum, 1);
    return bytes;
  });
}

}  // namespace octavo::test
