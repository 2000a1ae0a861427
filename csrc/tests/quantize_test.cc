// Floats into int8 and 4 bits at load, and activations by the row.
#include "plan/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/kernel_table.h"
#include "plan/acts.h"
#include "plan/gemm_input.h"
#include "plan/linear.h"
#include "tests/check.h"

namespace octavo::test {
namespace {

float as_half(float x) { return half_to_float(float_to_half(x)); }

double squared_error(const float* x, const QuantGroup& g) {
  double sum = 0.0;
  for (int i = 0; i < 32; ++i) {
    const double e = static_cast<double>(g.scale[0]) * g.q[i] + g.minimum[0] - x[i];
    sum += e * e;
  }
  return sum;
}

// The whole range in 15 steps, no search.
QuantGroup plain_u4(const float* x) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  QuantGroup g{};
  g.scale[0] = as_half((*high - *low) / 15.0f);
  g.minimum[0] = as_half(*low);
  for (int i = 0; i < 32; ++i) {
    const float u = g.scale[0] > 0.0f ? std::nearbyint((x[i] - g.minimum[0]) / g.scale[0]) : 0.0f;
    g.q[i] = static_cast<int16_t>(std::clamp(u, 0.0f, 15.0f));
  }
  return g;
}

}  // namespace

TEST(four_bits_are_chosen_by_least_error) {
  Random random(21);
  double found = 0.0, plain = 0.0;
  for (int trial = 0; trial < 400; ++trial) {
    std::normal_distribution<float> normal(uniform(random, -0.1f, 0.1f), 0.05f);
    float x[32];
    for (float& v : x) v = normal(random);
    if (trial % 4 == 0) x[trial % 32] = 1.0f;  // one far from the others
    const QuantGroup g = quantize_u4(x);
    for (int i = 0; i < 32; ++i) CHECK(g.q[i] >= 0 && g.q[i] <= 15, "%d", g.q[i]);
    CHECK(g.scale[0] == as_half(g.scale[0]) && g.minimum[0] == as_half(g.minimum[0]), "fp16");
    found += squared_error(x, g);
    plain += squared_error(x, plain_u4(x));
  }
  CHECK(found < 0.92 * plain, "%g of %g", found, plain);
}

TEST(numbers_on_a_grid_of_16_levels_stay_as_they_are) {
  Random random(22);
  for (int trial = 0; trial < 50; ++trial) {
    const float scale = std::ldexp(static_cast<float>(integer(random, 1, 15)), -9);
    const float minimum = std::ldexp(static_cast<float>(integer(random, -60, 0)), -7);
    float x[32];
    for (int i = 0; i < 32; ++i) {
      const int level = i < 2 ? 15 * i : integer(random, 0, 15);
      x[i] = scale * static_cast<float>(level) + minimum;
    }
    CHECK(squared_error(x, quantize_u4(x)) == 0.0, "trial %d", trial);
  }
  float same[32];
  std::fill(same, same + 32, 0.375f);
  CHECK(squared_error(same, quantize_u4(same)) == 0.0, "equal numbers");
}

TEST(int8_of_weights_is_within_half_a_step) {
  Random random(23);
  for (int64_t k : {1, 31, 32, 100}) {
    std::vector<float> x(k);
    for (float& v : x) v = uniform(random, -3.0f, 3.0f);
    std::vector<int8_t> q(k);
    const float scale = quantize_row_s8(x.data(), k, q.data());
    for (int64_t i = 0; i < k; ++i) {
      CHECK(std::fabs(scale * q[i] - x[i]) <= 0.5001f * scale, "k %ld i %ld", k, i);
    }
  }
  float group[32];
  for (float& v : group) v = uniform(random, -3.0f, 3.0f);
  const QuantGroup g = quantize_s8(group);
  for (int i = 0; i < 32;
       ++i) {  // the scale is rounded to fp16: the largest may be cut by 127 * 2^-12
    CHECK(std::fabs(g.scale[0] * g.q[i] - group[i]) <= 0.55f * g.scale[0], "i %d", i);
  }
}

TEST(what_is_not_finite_is_not_hidden) {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity()};
  for (float b : bad) {
    float x[32] = {};
    x[7] = b;
    int8_t q[32];
    CHECK(std::isnan(quantize_u4(x).scale[0]), "u4");
    CHECK(std::isnan(quantize_s8(x).scale[0]), "s8");
    CHECK(std::isnan(quantize_row_s8(x, 32, q)), "row");
  }
}

TEST(activations_by_the_row_leave_their_outliers_out) {
  Random random(24);
  constexpr int64_t kK = 96;
  Acts acts(2, kK, ActFormat::kRowQ8, 0.0f);
  std::vector<float> x(kK);
  for (float& v : x) v = uniform(random, -1.0f, 1.0f);
  x[40] = -30.0f;  // beyond 8 times the root mean square
  kernels()->store_acts(ActFormat::kRowQ8, x.data(), kK / 32, acts.buffer(), acts.chunk(1, 0), 1);
  const ActBuffer& b = acts.buffer();
  const ActView v = acts.view();
  CHECK(b.outlier_at[3] == kNoOutlier && b.outlier_at[5] == kNoOutlier, "which");
  CHECK(b.outlier_at[4] == 8 && b.outlier[4] == -30.0f, "%d", b.outlier_at[4]);
  int32_t sum = 0;
  for (int64_t i = 0; i < kK; ++i) {
    const int8_t q = v.q[kK + i];
    sum += q;
    const float wanted = i == 40 ? 0.0f : x[i];
    CHECK(std::fabs(v.scale[1] * q - wanted) <= 0.5001f * v.scale[1], "i %ld", i);
  }
  CHECK(v.row_sum[1] == sum, "%d != %d", v.row_sum[1], sum);
}

TEST(a_row_that_is_not_finite_is_not_hidden) {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       -std::numeric_limits<float>::infinity()};
  for (float b : bad) {
    Acts acts(1, 64, ActFormat::kRowQ8, 0.0f);
    std::vector<float> x(64, 1.0f);
    x[50] = b;
    kernels()->store_acts(ActFormat::kRowQ8, x.data(), 2, acts.buffer(), 0, 1);
    CHECK(std::isnan(acts.view().scale[0]), "scale %g", static_cast<double>(acts.view().scale[0]));
    CHECK(acts.buffer().outlier_at[1] == kNoOutlier, "outlier");
  }
}

TEST(int8_gives_the_same_bits_on_every_tier) {
  Random random(25);
  ThreadPool pool(1);
  constexpr int64_t kK = 160, kRows = 11;
  std::vector<float> weights(32 * kK), x(kK);
  for (float& w : weights) w = uniform(random, -0.3f, 0.3f);
  Arena arena;
  Linear linear(kK, {WeightFormat::kI8}, &arena);
  linear.pack(QuantType::kF32, reinterpret_cast<const uint8_t*>(weights.data()), 32, {32, 0, 0, 1},
              pool);
  Acts acts(kRows, kK, ActFormat::kRowQ8, 0.0f), acts_generic(kRows, kK, ActFormat::kRowQ8, 0.0f);
  for (int64_t r = 0; r < kRows; ++r) {
    for (float& v : x) v = uniform(random, -1.0f, 1.0f);
    kernels()->store_acts(ActFormat::kRowQ8, x.data(), kK / 32, acts.buffer(), acts.chunk(r, 0), 1);
    generic_kernels().store_acts(ActFormat::kRowQ8, x.data(), kK / 32, acts_generic.buffer(),
                                 acts_generic.chunk(r, 0), 1);
  }
  const ActView a = acts.view(), b = acts_generic.view();
  CHECK(std::equal(a.q, a.q + kRows * kK, b.q), "q");
  CHECK(same_bits(a.scale, b.scale, kRows), "scales");
  std::vector<float> out(kRows * kTileCols), out_generic(kRows * kTileCols);
  GemmInput::Lists lists;
  Beside beside;
  GemmInput input(*kernels(), acts, &lists, &beside);
  input.set_rows(0, kRows);
  input.multiply(linear, 0, {}, out.data());
  GemmInput input_generic(generic_kernels(), acts_generic, &lists, &beside);
  input_generic.set_rows(0, kRows);
  input_generic.multiply(linear, 0, {}, out_generic.data());
  CHECK(same_bits(out.data(), out_generic.data(), kRows * kTileCols), "products");
}

TEST(whole_numbers_multiply_exactly_in_int8) {
  Random random(26);
  ThreadPool pool(1);
  for (int64_t k : {4, 33, 576}) {
    std::vector<float> w(k), x((k + 31) / 32 * 32);
    int64_t expected = 0;
    for (int64_t i = 0; i < k; ++i) {
      const int a = i == 0 ? 127 : integer(random, -127, 127);
      const int b = i == 0 ? -127 : integer(random, -127, 127);
      w[i] = static_cast<float>(a);
      x[i] = static_cast<float>(b);
      expected += a * b;
    }
    Arena arena;
    Linear linear(k, {WeightFormat::kI8}, &arena);
    linear.pack(QuantType::kF32, reinterpret_cast<const uint8_t*>(w.data()), 1, {1, 0, 0, 1}, pool);
    Acts acts(1, linear.padded_k(), ActFormat::kRowQ8, 0.0f);
    kernels()->store_acts(ActFormat::kRowQ8, x.data(), linear.padded_k() / 32, acts.buffer(), 0, 1);
    float out[kTileCols];
    GemmInput::Lists lists;
    Beside beside;
    GemmInput input(*kernels(), acts, &lists, &beside);
    input.set_rows(0, 1);
    input.multiply(linear, 0, {}, out);
    CHECK(out[0] == static_cast<float>(expected), "k %ld: %g", k, static_cast<double>(out[0]));
    for (int c = 1; c < kTileCols; ++c) CHECK(out[c] == 0.0f, "column %d", c);
  }
}

}  // namespace octavo::test
