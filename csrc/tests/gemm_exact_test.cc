// Products that every tier has to get exactly right: scales are powers of two and all sums small
// whole numbers of them, so no operation rounds, in whatever order it is done and fused or not.
#include <cmath>

#include "kernels/kernel_table.h"
#include "plan/acts.h"
#include "plan/gemm_input.h"
#include "plan/linear.h"
#include "tests/check.h"

namespace octavo::test {
namespace {

constexpr int64_t kK = 256, kColumns = 32;

void put_half(uint8_t* at, float value) {
  const uint16_t h = float_to_half(value);
  std::memcpy(at, &h, 2);
}

// Rows of a quantized type with random numbers, scales of 1/4 (times whole numbers), minima of 3/4.
std::vector<uint8_t> exact_rows(QuantType type, Random& random) {
  std::vector<uint8_t> rows(kColumns * row_bytes(type, kK));
  for (uint8_t& b : rows) b = static_cast<uint8_t>(integer(random, 0, 255));
  const bool k_block =
      type == QuantType::kQ4_K || type == QuantType::kQ5_K || type == QuantType::kQ6_K;
  const int64_t block = row_bytes(type, k_block ? 256 : 32);
  for (size_t at = 0; at < rows.size(); at += block) {
    put_half(&rows[at + (type == QuantType::kQ6_K ? 208 : 0)], 0.25f);
    if (type == QuantType::kQ4_1 || type == QuantType::kQ5_1 || type == QuantType::kQ4_K ||
        type == QuantType::kQ5_K) {
      put_half(&rows[at + 2], 0.75f);
    }
  }
  return rows;
}

// Whole numbers whose largest in each group is 127: their scale is 1. Four of 127 share the energy,
// so that none is an outlier, except in every fifth group, which has one of 400 beside numbers that
// need a scale of 1 too.
std::vector<float> exact_activations(Random& random) {
  std::vector<float> x(kK);
  for (int64_t i = 0; i < kK; ++i) {
    x[i] = static_cast<float>(i % 8 == 3 ? (i % 16 == 3 ? 127 : -127) : integer(random, -1, 1));
    if (i % 160 == 5) x[i] = 400.0f;
  }
  return x;
}

std::vector<float> multiply(const Linear& linear, const std::vector<float>& x) {
  Acts acts(1, kK, linear.acts(), kHeadOutlierShare);
  kernels()->store_acts(acts.format(), x.data(), kK / kGroup, acts.buffer(), 0, 1);
  std::vector<float> out(kTileCols);
  GemmInput::Lists lists;
  Beside beside;
  GemmInput input(*kernels(), acts, &lists, &beside);
  input.set_rows(0, 1);
  input.multiply(linear, 0, {}, out.data());
  return out;
}

void check_exact(QuantType type, WeightFormat format, const std::vector<uint8_t>& rows,
                 const std::vector<float>& x) {
  ThreadPool pool(1);
  Arena arena;
  Linear linear(kK, {format}, &arena);
  linear.pack(type, rows.data(), kColumns, {kColumns, 0, 0, 1}, pool);
  const std::vector<float> got = multiply(linear, x);
  std::vector<float> weights(kK);
  for (int64_t c = 0; c < kColumns; ++c) {
    dequantize_row(type, &rows[c * row_bytes(type, kK)], kK, weights.data());
    double sum = 0.0, magnitude = 0.0;
    for (int64_t i = 0; i < kK; ++i) {
      sum += static_cast<double>(weights[i]) * x[i];
      magnitude += std::fabs(static_cast<double>(weights[i]) * x[i]);
    }
    CHECK(magnitude < 0x1p22, "the test itself: sums of quarters must stay exact, not %g",
          magnitude);
    CHECK(got[c] == sum, "type %d format %d column %ld: %.9g != %.9g", static_cast<int>(type),
          static_cast<int>(format), c, static_cast<double>(got[c]), sum);
  }
}

}  // namespace

TEST(quantized_weights_multiply_whole_numbers_exactly) {
  Random random(3);
  for (QuantType type : {QuantType::kQ4_0, QuantType::kQ4_1, QuantType::kQ5_0, QuantType::kQ5_1,
                         QuantType::kQ8_0, QuantType::kQ4_K, QuantType::kQ5_K, QuantType::kQ6_K}) {
    const std::vector<uint8_t> rows = exact_rows(type, random);
    for (int turn = 0; turn < 4; ++turn) {
      check_exact(type, packed_format(type), rows, exact_activations(random));
    }
  }
}

TEST(floats_multiply_whole_numbers_exactly) {
  Random random(4);
  std::vector<float> weights(kColumns * kK), x(kK);
  for (float& w : weights)
    w = static_cast<float>(integer(random, -255, 255));  // 8 bits: bfloat16 too
  for (float& a : x) a = static_cast<float>(integer(random, -63, 63));
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(weights.data());
  const std::vector<uint8_t> rows(bytes, bytes + weights.size() * 4);
  for (WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16}) {
    check_exact(QuantType::kF32, format, rows, x);
  }
}

TEST(the_largest_group_does_not_overflow) {
  // 32 products of the largest numbers: 128 * 127, and 31 * 127 of the formats with minima.
  for (QuantType type : {QuantType::kQ8_0, QuantType::kQ5_1}) {
    const int64_t bytes = row_bytes(type, kK), block = row_bytes(type, 32);
    std::vector<uint8_t> rows(kColumns * bytes, type == QuantType::kQ8_0 ? 0x80 : 0xff);
    for (size_t at = 0; at < rows.size(); at += block) {
      put_half(&rows[at], 0.25f);
      if (type == QuantType::kQ5_1) put_half(&rows[at + 2], 0.0f);
    }
    for (float sign : {1.0f, -1.0f}) {
      check_exact(type, packed_format(type), rows, std::vector<float>(kK, 127.0f * sign));
    }
  }
}

}  // namespace octavo::test
