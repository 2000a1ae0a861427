// Every GEMM kernel against sums in double, and against itself: a row's bits do not depend on its
// company.
#include <cmath>

#include "kernels/kernel_table.h"
#include "plan/linear.h"
#include "plan/op.h"
#include "tests/check.h"

namespace octavo::test {
namespace {

const QuantType kTypes[] = {QuantType::kF32,  QuantType::kF16,  QuantType::kBF16, QuantType::kQ4_0,
                            QuantType::kQ4_1, QuantType::kQ5_0, QuantType::kQ5_1, QuantType::kQ8_0,
                            QuantType::kQ4_K, QuantType::kQ5_K, QuantType::kQ6_K};

// Random file bytes of `rows` rows: scales of sensible size, everything else any bits.
std::vector<uint8_t> random_rows(QuantType type, int64_t rows, int64_t k, Random& random) {
  const int64_t stride = row_bytes(type, k);
  std::vector<uint8_t> bytes(rows * stride);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(integer(random, 0, 255));
  auto put_half = [&](int64_t at, float value) {
    const uint16_t h = float_to_half(value);
    std::memcpy(bytes.data() + at, &h, 2);
  };
  for (int64_t r = 0; r < rows; ++r) {
    uint8_t* row = bytes.data() + r * stride;
    if (type == QuantType::kF32) {
      for (int64_t i = 0; i < k; ++i) {
        const float v = uniform(random, -1.0f, 1.0f);
        std::memcpy(row + 4 * i, &v, 4);
      }
    } else if (type == QuantType::kF16) {
      for (int64_t i = 0; i < k; ++i) put_half(r * stride + 2 * i, uniform(random, -1.0f, 1.0f));
    } else if (type == QuantType::kBF16) {
      for (int64_t i = 0; i < k; ++i) {
        const uint16_t h = float_to_bf16(uniform(random, -1.0f, 1.0f));
        std::memcpy(row + 2 * i, &h, 2);
      }
    } else {
      const bool k_block =
          type == QuantType::kQ4_K || type == QuantType::kQ5_K || type == QuantType::kQ6_K;
      const int64_t block = row_bytes(type, k_block ? 256 : 32);
      for (int64_t b = 0; b < stride; b += block) {
        const int64_t at = r * stride + b;
        put_half(type == QuantType::kQ6_K ? at + 208 : at, uniform(random, 0.001f, 0.1f));
        if (type == QuantType::kQ4_1 || type == QuantType::kQ5_1 || type == QuantType::kQ4_K ||
            type == QuantType::kQ5_K) {
          put_half(at + 2, uniform(random, -0.1f, 0.1f));
        }
      }
    }
  }
  return bytes;
}

struct Problem {
  Problem(QuantType type, WeightFormat format, int64_t n, int64_t k, int64_t m, uint32_t seed)
      : random(seed),
        pool(1),
        linear(k, std::vector<WeightFormat>((n + 31) / 32, format), &arena),
        acts(m, linear.padded_k(), act_format(format)) {
    const std::vector<uint8_t> rows = random_rows(type, n, k, random);
    linear.pack(type, rows.data(), n, {n, 0, 0, 1}, pool);
    std::vector<float> x(linear.padded_k());
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t i = 0; i < linear.padded_k(); ++i)
        x[i] = i < k ? uniform(random, -2.0f, 2.0f) : 0.0f;
      if (r == 1) std::fill(x.begin(), x.end(), 0.0f);  // a row of zeros has a scale of 0
      if (r == 3) x[0] = -40.0f, x[k - 1] = 33.0f;      // outliers, first and last of the row
      kernels()->store_acts(acts.format(), x.data(), linear.padded_k() / 32, acts.buffer(),
                            acts.chunk(r, 0));
    }
  }

  // Activation as the kernel sees it, after rounding or quantization.
  double activation(int64_t row, int64_t i) const {
    const ActView v = acts.view();
    if (acts.format() == ActFormat::kF32) return v.f32[row * v.k + i];
    if (acts.format() == ActFormat::kBf16) {
      const uint32_t bits = static_cast<uint32_t>(v.bf16[row * v.k + i]) << 16;
      float f;
      std::memcpy(&f, &bits, 4);
      return f;
    }
    const int64_t chunk = (row * v.k + i) / 32;
    const float scale = v.scale[acts.format() == ActFormat::kRowQ8 ? row : chunk];
    const ActBuffer& b = acts.buffer();
    if (b.outlier[chunk] != 0.0f && i % 32 == b.outlier_at[chunk]) return b.outlier[chunk];
    return static_cast<double>(v.q[row * v.k + i]) * scale;
  }

  std::vector<float> multiply(int64_t tile, int64_t row, int64_t rows) {
    std::vector<float> out(rows * kTileCols);
    KvFeed feed;
    GemmInput input(*kernels(), acts, &lists, &feed);
    input.set_rows(row, row + rows);
    input.multiply(linear, tile, nullptr, out.data());
    return out;
  }

  Random random;
  ThreadPool pool;
  Arena arena;
  Linear linear;
  Acts acts;
  GemmInput::Lists lists;
};

void check_problem(QuantType type, WeightFormat format, int64_t n, int64_t k, uint32_t seed) {
  constexpr int64_t kRows = 9;  // more than any kernel takes at once
  Problem p(type, format, n, k, kRows, seed);
  std::vector<float> column(p.linear.padded_k());
  for (int64_t tile = 0; tile < p.linear.num_tiles(); ++tile) {
    std::vector<std::vector<float>> alone;
    for (int64_t r = 0; r < kRows; ++r) alone.push_back(p.multiply(tile, r, 1));
    for (int64_t rows = 2; rows <= kRows; ++rows) {
      for (int64_t first = 0; first + rows <= kRows; ++first) {
        const std::vector<float> together = p.multiply(tile, first, rows);
        for (int64_t r = 0; r < rows; ++r) {
          CHECK(same_bits(&together[r * kTileCols], alone[first + r].data(), kTileCols),
                "format %d k %ld rows %ld row %ld", static_cast<int>(format), k, rows, r);
        }
      }
    }
    for (int c = 0; c < kTileCols; ++c) {
      const Linear::Tile& t = p.linear.tile(tile);
      kernels()->tile_column(t.format, t.data, p.linear.padded_k(), c, column.data());
      for (int64_t r = 0; r < kRows; ++r) {
        double sum = 0.0, magnitude = 0.0;
        for (int64_t i = 0; i < p.linear.padded_k(); ++i) {
          const double product = p.activation(r, i) * static_cast<double>(column[i]);
          sum += product;
          magnitude += std::fabs(product);
        }
        // Grouped sums pass through a few roundings a group; u * max of the parts bounds them. The
        // part of a weight's minimum cancels against the rest, hence the factor.
        const double bound = (static_cast<double>(k) / 16 + 8) * 6e-8 * 16 * magnitude + 1e-30;
        CHECK(std::fabs(sum - alone[r][c]) <= bound, "format %d k %ld row %ld col %d: %g != %g",
              static_cast<int>(format), k, r, c, static_cast<double>(alone[r][c]), sum);
      }
    }
  }
}

}  // namespace

TEST(gemm_equals_double_sums_in_every_format) {
  uint32_t seed = 1;
  for (QuantType type : kTypes) {
    for (int64_t k : {int64_t{256}, int64_t{512}}) {
      check_problem(type, packed_format(type), 70, k, ++seed);
      check_problem(type, WeightFormat::kF32, 33, k, ++seed);
      check_problem(type, WeightFormat::kBf16, 31, k, ++seed);
    }
  }
  for (int64_t k : {256, 512}) {
    check_problem(QuantType::kBF16, WeightFormat::kU4, 33, k, ++seed);
    check_problem(QuantType::kF16, WeightFormat::kS8, 33, k, ++seed);
    check_problem(QuantType::kBF16, WeightFormat::kI8, 70, k, ++seed);
  }
  for (int64_t k : {1, 31, 33, 48, 100}) {  // not whole groups
    check_problem(QuantType::kF32, WeightFormat::kI8, 37, k, ++seed);
    check_problem(QuantType::kF32, WeightFormat::kF32, 5, k, ++seed);
    check_problem(QuantType::kF32, WeightFormat::kBf16, 37, k, ++seed);
  }
}

TEST(tile_columns_are_the_file_s_numbers) {
  Random random(7);
  ThreadPool pool(2);
  for (QuantType type : kTypes) {
    const int64_t n = 45, k = 256;
    const std::vector<uint8_t> rows = random_rows(type, n, k, random);
    for (WeightFormat format : {WeightFormat::kF32, packed_format(type)}) {
      Arena arena;
      Linear linear(k, std::vector<WeightFormat>(2, format), &arena);
      linear.pack(type, rows.data(), n, {n, 0, 0, 1}, pool);
      std::vector<float> wanted(k), got(k);
      for (int64_t r = 0; r < n; ++r) {
        dequantize_row(type, rows.data() + r * row_bytes(type, k), k, wanted.data());
        kernels()->tile_column(format, linear.tile(r / 32).data, k, static_cast<int>(r % 32),
                               got.data());
        // fp16 scales are exact except for the products of K blocks; bfloat16 keeps 8 bits.
        const bool exact = format == WeightFormat::kF32 || type == QuantType::kBF16 ||
                           type == QuantType::kQ4_0 || type == QuantType::kQ4_1 ||
                           type == QuantType::kQ5_0 || type == QuantType::kQ5_1 ||
                           type == QuantType::kQ8_0;
        for (int64_t i = 0; i < k; ++i) {
          float parts = std::fabs(wanted[i]);
          if (!is_float(type)) {
            const QuantGroup g = decode_group(type, rows.data() + r * row_bytes(type, k), i / 32);
            parts = std::fabs(g.scale[i % 32 / 16] * static_cast<float>(g.q[i % 32])) +
                    std::fabs(g.minimum[i % 32 / 16]);
          }
          const float tolerance = exact            ? 0.0f
                                  : is_float(type) ? 0x1p-8f * parts
                                                   : 0x1p-11f * parts;
          CHECK(std::fabs(wanted[i] - got[i]) <= tolerance, "type %d row %ld k %ld: %g != %g",
                static_cast<int>(type), r, i, static_cast<double>(got[i]),
                static_cast<double>(wanted[i]));
        }
      }
    }
  }
}

TEST(whole_numbers_multiply_exactly) {
  // Activations whose largest is 127 have a scale of 1; with power-of-two weight scales every sum
  // is exact.
  Random random(3);
  ThreadPool pool(1);
  const int64_t k = 64;
  std::vector<uint8_t> row(row_bytes(QuantType::kQ8_0, k));
  std::vector<float> x(k);
  int64_t expected = 0;
  for (int64_t g = 0; g < k / 32; ++g) {
    const uint16_t quarter = float_to_half(0.25f);
    std::memcpy(row.data() + g * 34, &quarter, 2);
    for (int i = 0; i < 32; ++i) {
      const int w = i == 0 ? -128 : integer(random, -128, 127);
      const int a = i == 0 ? 127 : integer(random, -127, 127);
      row[g * 34 + 2 + i] = static_cast<uint8_t>(static_cast<int8_t>(w));
      x[g * 32 + i] = static_cast<float>(a);
      expected += w * a;
    }
  }
  Arena arena;
  Linear linear(k, {WeightFormat::kS8}, &arena);
  linear.pack(QuantType::kQ8_0, row.data(), 1, {1, 0, 0, 1}, pool);
  Acts acts(1, k, ActFormat::kQ8);
  kernels()->store_acts(ActFormat::kQ8, x.data(), k / 32, acts.buffer(), 0);
  float out[kTileCols];
  GemmInput::Lists lists;
  KvFeed feed;
  GemmInput input(*kernels(), acts, &lists, &feed);
  input.set_rows(0, 1);
  input.multiply(linear, 0, nullptr, out);
  CHECK(out[0] == static_cast<float>(expected) / 4.0f, "%g", static_cast<double>(out[0]));
}

}  // namespace octavo::test
