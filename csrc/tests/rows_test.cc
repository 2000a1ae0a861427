// The kernels that work on one row against double, each within the roundings that it takes. Rows
// that vectors do not fill, ties, and what is not a number.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/kernel_table.h"
#include "plan/acts.h"
#include "plan/quant_blocks.h"
#include "tests/check.h"

namespace octavo::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_row(Random& random, int64_t n, float low, float high) {
  std::vector<float> x(n);
  for (float& v : x) v = uniform(random, low, high);
  return x;
}

// Relative error of the kernels' e^x, x exact: x * log2(e) has a rounded constant and a rounded
// product, so the exponent is off by 2 u |x| log2(e), which is 2 u |x| of the result; 2^y itself
// adds 2e-7 or less (simd.h).
double exp_error(double x) { return 2.0 * kUnit * std::fabs(x) + 0x1p-22; }

}  // namespace

TEST(rms_norm_equals_double) {
  Random random(1);
  for (int64_t count : {1, 5, 16, 31, 48, 64, 576, 2048}) {
    const int64_t n = (count + 15) / 16 * 16;
    std::vector<float> x = random_row(random, n, -3.0f, 3.0f), out(n, NAN);
    std::fill(x.begin() + count, x.end(), 0.0f);
    const std::vector<float> weight = random_row(random, n, -2.0f, 2.0f);
    kernels()->rms_norm(x.data(), weight.data(), 1e-5f, count, n, out.data());
    double squares = 0.0;
    for (float v : x) squares += static_cast<double>(v) * v;
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(count) + 1e-5f);
    // A square passes through its own rounding, n / 16 additions in its lane and 4 across lanes,
    // then the mean and eps: half of that reaches the root. Then root, reciprocal and two products
    // round.
    const double bound = 0.5 * gamma_n(static_cast<double>(n) / 16 + 7) + gamma_n(4);
    for (int64_t i = 0; i < n; ++i) {
      const double wanted = x[i] * factor * weight[i];
      CHECK(std::fabs(out[i] - wanted) <= bound * (1 + 1e-6) * std::fabs(wanted),
            "n %ld at %ld: %g != %g", count, i, static_cast<double>(out[i]), wanted);
    }
  }
  // Nothing rounds: the root mean square is 2.
  std::vector<float> x(64, 2.0f), weight(64, 3.0f), out(64);
  for (size_t i = 0; i < x.size(); i += 3) x[i] = -2.0f;
  kernels()->rms_norm(x.data(), weight.data(), 0.0f, 64, 64, out.data());
  for (size_t i = 0; i < x.size(); ++i)
    CHECK(out[i] == x[i] * 1.5f, "%g", static_cast<double>(out[i]));
}

TEST(sums_and_factors_round_once) {
  Random random(2);
  for (int64_t n : {16, 48, 576}) {
    const std::vector<float> x = random_row(random, n, -3.0f, 3.0f),
                             y = random_row(random, n, -1e4f, 1e4f);
    std::vector<float> sum = x, product = x;
    kernels()->add_to(sum.data(), y.data(), n);
    kernels()->scale(product.data(), 0.1f, n);
    for (int64_t i = 0; i < n; ++i) {
      CHECK(sum[i] == static_cast<float>(static_cast<double>(x[i]) + y[i]), "sum at %ld", i);
      CHECK(product[i] == static_cast<float>(static_cast<double>(x[i]) * 0.1f), "product at %ld",
            i);
    }
  }
}

TEST(rope_turns_pairs) {
  Random random(3);
  for (int64_t half : {1, 3, 8, 16, 17, 32, 40, 128}) {
    const std::vector<float> x = random_row(random, 2 * half, -5.0f, 5.0f);
    std::vector<float> cos(half), sin(half), out = x;
    for (int64_t i = 0; i < half; ++i) {
      const float angle = uniform(random, 0.0f, 6.3f);
      cos[i] = std::cos(angle), sin[i] = std::sin(angle);
    }
    kernels()->rope(out.data(), cos.data(), sin.data(), half);
    for (int64_t i = 0; i < half; ++i) {
      const double a = x[i], b = x[i + half], c = cos[i], s = sin[i];
      CHECK(
          std::fabs(out[i] - (a * c - b * s)) <= gamma_n(2) * (std::fabs(a * c) + std::fabs(b * s)),
          "half %ld, first of pair %ld", half, i);
      CHECK(std::fabs(out[i + half] - (b * c + a * s)) <=
                gamma_n(2) * (std::fabs(b * c) + std::fabs(a * s)),
            "half %ld, second of pair %ld", half, i);
    }
  }
  float quarter[4] = {1.0f, 2.0f, 3.0f, 4.0f};
  const float zeros[2] = {0.0f, 0.0f}, ones[2] = {1.0f, 1.0f};
  kernels()->rope(quarter, zeros, ones, 2);
  CHECK(quarter[0] == -3.0f && quarter[1] == -4.0f && quarter[2] == 1.0f && quarter[3] == 2.0f,
        "a quarter turn");
}

TEST(gates_equal_double) {
  Random random(4);
  for (Activation kind : {Activation::kSilu, Activation::kGeluTanh}) {
    for (float range : {0.01f, 1.0f, 8.0f, 300.0f}) {
      std::vector<float> x = random_row(random, 32, -range, range),
                         up = random_row(random, 32, -2.0f, 2.0f);
      x[7] = 0.0f, x[31] = -0.0f;
      float out[32];
      kernels()->gate(kind, x.data(), up.data(), 32, out);
      for (int i = 0; i < 32; ++i) {
        const double v = x[i];
        const bool gelu = kind == Activation::kGeluTanh;
        const double inner = gelu ? 1.5957691216057308 * (v + 0.044715 * v * v * v) : v;
        const double wanted = v / (1.0 + std::exp(-inner)) * up[i];
        // The argument of e^x is off by 7 roundings with GELU (3 products, sum, factor and two
        // constants), which count |inner| times; then 1 + e, the quotient and two products round.
        // Below e^-87 a sigmoid is anything from 0 to 2^-126.
        const double relative =
            (gelu ? 7.0 : 0.0) * kUnit * std::fabs(inner) + exp_error(inner) + gamma_n(4);
        const double bound =
            relative * std::fabs(wanted) + 0x1p-126 * std::fabs(v * up[i]) + 0x1p-149;
        CHECK(std::fabs(out[i] - wanted) <= bound * (1 + 1e-4), "kind %d of %g: %g != %g",
              static_cast<int>(kind), v, static_cast<double>(out[i]), wanted);
        if (v == 0.0) CHECK(out[i] == 0.0f, "zero");
      }
    }
  }
}

TEST(bfloat16_activations_round_to_nearest_even) {
  Random random(5);
  std::vector<float> x = random_row(random, 64, -3.0f, 3.0f);
  for (int i = 0; i < 8; ++i) {
    const uint32_t ties[] = {0x3f808000u, 0x3f818000u, 0x3f807fffu, 0x3f808001u,
                             0xbf808000u, 0xbf818000u, 0x00000000u, 0x80000000u};
    std::memcpy(&x[i * 8 + i], &ties[i], 4);
  }
  Acts acts(1, 64, ActFormat::kBf16, kHeadOutlierShare),
      floats(1, 64, ActFormat::kF32, kHeadOutlierShare);
  kernels()->store_acts(ActFormat::kBf16, x.data(), 2, acts.buffer(), 0, 1);
  kernels()->store_acts(ActFormat::kF32, x.data(), 2, floats.buffer(), 0, 1);
  for (int i = 0; i < 64; ++i) {
    CHECK(acts.view().bf16[i] == float_to_bf16(x[i]), "%a", static_cast<double>(x[i]));
  }
  CHECK(same_bits(floats.view().f32, x.data(), 64), "floats stay as they are");
}

namespace {

// A chunk as int8, by its definition in words: see quantize_chunk.
void check_quantized(const std::vector<float>& x, const Acts& acts, int64_t chunk) {
  const ActBuffer& b = acts.buffer();
  const int at = b.outlier_at[chunk] != kNoOutlier ? b.outlier_at[chunk] : -1;
  double energy = 0.0, largest = 0.0, rest = 0.0;
  for (int i = 0; i < 32; ++i) {
    const double v = x[chunk * 32 + i];
    energy += v * v;
    largest = std::max(largest, std::fabs(v));
    if (i != at) rest = std::max(rest, std::fabs(v));
  }
  // The kernel sums 32 squares in float: at the limit itself either is right.
  const double share = energy > 0.0 ? largest * largest / energy : 0.0;
  if (std::fabs(share - 0.4) > 1e-5) CHECK((at >= 0) == (share > 0.4), "share %g", share);
  if (at >= 0) {
    CHECK(b.outlier[chunk] == x[chunk * 32 + at], "the outlier keeps its value");
    CHECK(std::fabs(b.outlier[chunk]) == largest && b.q[chunk * 32 + at] == 0, "at %d", at);
  }
  const float scale = b.scale[chunk];
  CHECK(scale == static_cast<float>(rest) / 127.0f, "scale %g", static_cast<double>(scale));
  int32_t sums[2] = {0, 0};
  for (int i = 0; i < 32; ++i) {
    const int q = b.q[chunk * 32 + i];
    sums[i / 16] += q;
    if (i == at) continue;
    CHECK(q >= -127 && q <= 127, "q %d", q);
    // Half a step, and what x * (127 / largest) and the scale are off by: three roundings of up to
    // 127 steps.
    CHECK(std::fabs(x[chunk * 32 + i] - static_cast<double>(q) * scale) <=
              (0.5 + 127.0 * gamma_n(4)) * scale,
          "chunk %ld number %d: %g is %d of %g", chunk, i, static_cast<double>(x[chunk * 32 + i]),
          q, static_cast<double>(scale));
  }
  CHECK(b.sum16[2 * chunk] == sums[0] && b.sum16[2 * chunk + 1] == sums[1], "sums of 16");
  CHECK(b.sum[chunk] == scale * static_cast<float>(sums[0] + sums[1]), "scaled sum");
}

// Chunks of every kind: plain, with outliers at each place and sign, flat, zero, a lone number,
// halves of steps.
std::vector<float> chunks_to_quantize(Random& random) {
  std::vector<float> x;
  for (int kind = 0; kind < 110; ++kind) {
    std::vector<float> chunk = random_row(random, 32, -1.0f, 1.0f);
    const float sign = kind % 2 == 0 ? 1.0f : -1.0f;
    if (kind < 32) chunk[kind] = sign * uniform(random, 1.0f, 40.0f);
    if (kind == 40) std::fill(chunk.begin(), chunk.end(), 0.0f);
    if (kind == 41) std::fill(chunk.begin(), chunk.end(), -0.3f);
    if (kind >= 42 && kind < 46) {
      std::fill(chunk.begin(), chunk.end(), 0.0f);
      chunk[kind - 40] = sign * 1e-3f;  // alone: nothing is left to quantize
    }
    if (kind >= 46 && kind < 50) chunk[5] = chunk[29] = 7.0f;  // two equal ones share the energy
    if (kind == 50) {
      for (int i = 0; i < 32; ++i) chunk[i] = i < 4 ? 127.0f : 0.5f + static_cast<float>(i);
    }
    if (kind >= 60 && kind < 70) {
      for (float& v : chunk) v *= std::ldexp(1.0f, (kind - 65) * 10);
    }
    x.insert(x.end(), chunk.begin(), chunk.end());
  }
  return x;
}

}  // namespace

TEST(int8_activations_are_what_their_definition_says) {
  Random random(6);
  const std::vector<float> x = chunks_to_quantize(random);
  const int64_t chunks = static_cast<int64_t>(x.size()) / 32;
  Acts acts(1, static_cast<int64_t>(x.size()), ActFormat::kQ8, kHeadOutlierShare);
  kernels()->store_acts(ActFormat::kQ8, x.data(), chunks, acts.buffer(), 0, 1);
  for (int64_t c = 0; c < chunks; ++c) check_quantized(x, acts, c);
  // A chunk at an offset, beside memory that is not its own.
  Acts two(2, 64, ActFormat::kQ8, kHeadOutlierShare);
  std::memset(two.buffer().q, 77, 128);
  kernels()->store_acts(ActFormat::kQ8, x.data(), 1, two.buffer(), two.chunk(1, 32), 1);
  for (int i = 0; i < 96; ++i) CHECK(two.buffer().q[i] == 77, "number %d of another chunk", i);
  CHECK(std::equal(two.buffer().q + 96, two.buffer().q + 128, acts.buffer().q), "the chunk itself");
}

TEST(a_row_can_be_drawn_from_unless_it_is_not_finite) {
  for (int64_t n : {1, 2, 15, 16, 17, 31, 32, 33, 70}) {
    std::vector<float> x(n, -kInfinity);
    CHECK(kernels()->is_drawable(x.data(), n), "n %ld", n);
    for (int64_t i = 0; i < n; ++i) {
      for (float bad : {NAN, -NAN, kInfinity}) {
        x[i] = bad;
        CHECK(!kernels()->is_drawable(x.data(), n), "n %ld, %g at %ld", n, static_cast<double>(bad),
              i);
      }
      x[i] = std::numeric_limits<float>::max();
      CHECK(kernels()->is_drawable(x.data(), n), "n %ld, largest float at %ld", n, i);
    }
  }
}

TEST(the_best_token_is_the_lowest_of_the_largest) {
  for (int64_t n : {1, 2, 15, 16, 17, 31, 32, 33, 70}) {
    for (int64_t i = 0; i < n; ++i) {
      std::vector<float> x(n, -2.0f);
      for (int64_t j = i; j < n; j += 3) x[j] = -1.0f;  // equals after it
      CHECK(kernels()->argmax(x.data(), n) == i, "n %ld at %ld", n, i);
      if (i > 0) x[i - 1] = NAN;
      CHECK(kernels()->argmax(x.data(), n) == i, "n %ld at %ld, beside no number", n, i);
      if (n > kTileCols) continue;
      BestToken best{-1.5f, 3, true};
      kernels()->keep_best(x.data(), n, 100, &best);
      CHECK(best.value == -1.0f && best.token == 100 + i, "n %ld at %ld: %d", n, i, best.token);
      CHECK(best.drawable == (i == 0),
            "no number is seen where it stands in a tile with a new best");
      best = {-1.0f, 3, true};
      kernels()->keep_best(x.data(), n, 100, &best);
      CHECK(best.token == 3 && best.drawable == (i == 0), "the first of equals stays");
    }
  }
}

TEST(what_a_mask_does_not_allow_is_hidden) {
  Random random(11);
  for (int64_t n : {1, 2, 15, 16, 17, 31, 32}) {
    for (uint32_t allowed : {0u, ~0u, 1u, 1u << 31, 0x55555555u, 0xffff0001u}) {
      const std::vector<float> before = random_row(random, n, -9.0f, 9.0f);
      std::vector<float> x = before;
      x.push_back(3.0f);
      kernels()->hide(x.data(), n, allowed);
      for (int64_t i = 0; i < n; ++i) {
        const float expected = (allowed >> i & 1) != 0 ? before[i] : -kInfinity;
        CHECK(x[i] == expected, "n %ld, mask %x at %ld: %g", n, allowed, i,
              static_cast<double>(x[i]));
      }
      CHECK(x[n] == 3.0f, "n %ld: what stands behind it", n);
    }
  }
}

TEST(the_best_allowed_token_and_numbers_that_are_none) {
  for (int64_t n : {1, 2, 15, 16, 17, 31, 32}) {
    for (int64_t i = 0; i < n; ++i) {
      std::vector<float> x(n, 5.0f);
      x[i] = 1.0f;
      std::vector<float> y = x;
      BestToken best{0.5f, 3, true};
      kernels()->keep_best_allowed(y.data(), n, 1u << i, 100, &best);
      CHECK(best.value == 1.0f && best.token == 100 + i && best.drawable, "n %ld at %ld", n, i);
      y = x;
      kernels()->keep_best_allowed(y.data(), n, 0u, 100, &best);
      CHECK(best.value == 1.0f && best.token == 100 + i && best.drawable, "none is allowed");
      y = x;
      best = {1.0f, 3, true};
      kernels()->keep_best_allowed(y.data(), n, 1u << i, 100, &best);
      CHECK(best.token == 3 && best.drawable, "the first of equals stays");
      for (float bad : {NAN, kInfinity}) {
        y = x;
        y[0] = bad;
        best = {9.0f, 3, true};
        kernels()->keep_best_allowed(y.data(), n, n == 1 ? 0u : 2u, 100, &best);
        CHECK(!best.drawable && best.token == 3, "n %ld: what is hidden must be a number", n);
      }
    }
  }
}

TEST(exponentials_and_their_sum_equal_double) {
  Random random(7);
  for (int64_t n : {1, 5, 16, 17, 1000, 1023, 1024, 1025, 5003}) {
    for (float range : {1.0f, 40.0f, 200.0f}) {
      std::vector<float> x = random_row(random, n, -range, range);
      if (n > 3) x[3] = -kInfinity;
      const float max = *std::max_element(x.begin(), x.end());
      double total = 0.0, error = 0.0;
      for (float v : x) {
        const double exponent = static_cast<double>(v) - max;
        if (v == -kInfinity) continue;
        total += std::exp(exponent);
        error +=
            std::exp(exponent) * (exp_error(exponent) + kUnit * std::fabs(exponent)) + 0x1p-125;
      }
      // 1,024 numbers are summed in 16 lanes of float, then across them; the rest is in double.
      const double bound =
          error / total + gamma_n(64 + 4) + 1e-15 * (1 + std::fabs(static_cast<double>(max)));
      const double got = kernels()->log_sum_exp(x.data(), n, max);
      CHECK(std::fabs(got - (max + std::log(total))) <= bound * (1 + 1e-3), "n %ld range %g: %.12g",
            n, static_cast<double>(range), got);

      const int64_t padded = (n + 15) / 16 * 16;
      x.resize(padded, -kInfinity);
      std::vector<float> p(padded, NAN);
      kernels()->exp_scaled(x.data(), max, 0.7f, padded, p.data());
      for (int64_t i = 0; i < padded; ++i) {
        const double exponent = (static_cast<double>(x[i]) - max) * static_cast<double>(0.7f);
        const double wanted = x[i] == -kInfinity ? 0.0 : std::exp(exponent);
        // Difference and product round before the exponential does; below 2^-126 it is 0.
        const double off =
            wanted == 0.0 ? 0.0 : exp_error(exponent) + gamma_n(2) * std::fabs(exponent);
        CHECK(std::fabs(p[i] - wanted) <=
                  wanted * off * (1 + 1e-3) + (x[i] == -kInfinity ? 0.0 : 0x1p-125),
              "e^%g: %g", exponent, static_cast<double>(p[i]));
      }
    }
  }
}

TEST(exponentials_keep_what_is_not_a_number) {
  std::vector<float> x(16, 0.0f), p(16);
  x[3] = NAN;
  kernels()->exp_scaled(x.data(), 0.0f, 1.0f, 16, p.data());
  for (int i = 0; i < 16; ++i)
    CHECK(i == 3 ? std::isnan(p[i]) : p[i] == 1.0f, "%d: %g", i, static_cast<double>(p[i]));
}

}  // namespace octavo::test
