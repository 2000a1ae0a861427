// Every GEMM kernel against sums in double, and against itself: a row's bits do not depend on its
// company.
#include <algorithm>
#include <cmath>
#include <utility>

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

// A weight as it lies in a tile (formats.h): steps * scale + minimum, exactly.
struct PackedWeight {
  double scaled, minimum;
  double value() const { return scaled + minimum; }
  double magnitude() const { return std::fabs(scaled) + std::fabs(minimum); }
};
PackedWeight packed_weight(const Linear::Tile& tile, int64_t k, int column) {
  const int panel = column / kPanelCols, lane = column % kPanelCols;
  const uint8_t* record =
      tile.data + header_bytes(tile.format) + k / record_k(tile.format) * record_bytes(tile.format);
  const int i = static_cast<int>(k % record_k(tile.format));
  auto half = [](const uint8_t* line, int index) {
    uint16_t bits;
    std::memcpy(&bits, line + 2 * index, 2);
    return static_cast<double>(half_to_float(bits));
  };
  switch (tile.format) {
    case WeightFormat::kF32: {
      float value;
      std::memcpy(&value, record + 4 * column, 4);
      return {value, 0.0};
    }
    case WeightFormat::kBf16: {
      uint16_t bits;
      std::memcpy(&bits, record + 4 * column + 2 * i, 2);
      return {bf16_value(bits), 0.0};
    }
    case WeightFormat::kU4: {
      const uint8_t* lines = record + panel * 5 * kLine;
      const int byte = lines[i / 8 * kLine + lane * 4 + i % 4];
      const int u = i % 8 < 4 ? byte & 15 : byte >> 4;
      return {u * half(lines + 4 * kLine, lane), half(lines + 4 * kLine, 16 + lane)};
    }
    case WeightFormat::kU8: {
      const uint8_t* lines = record + panel * 9 * kLine;
      const int u = lines[i / 4 * kLine + lane * 4 + i % 4];
      return {u * half(lines + 8 * kLine, lane), half(lines + 8 * kLine, 16 + lane)};
    }
    case WeightFormat::kS8:
    case WeightFormat::kS8x16: {
      const int lines = tile.format == WeightFormat::kS8 ? 8 : 4;
      const int u = record[(panel * lines + i / 4) * kLine + lane * 4 + i % 4];
      return {(u - 128) * half(record + 2 * lines * kLine + panel * 32, lane), 0.0};
    }
    case WeightFormat::kI8: {
      float scale;
      std::memcpy(&scale, tile.data + 4 * column, 4);
      return {(record[panel * kLine + lane * 4 + i] - 128) * static_cast<double>(scale), 0.0};
    }
  }
  return {};
}

// Most roundings that a product passes through on its way into a sum over k: its own (the generic
// tier has no fused multiply-add) and one for each addition. A group of quantized numbers is exact
// as an integer; it rounds in scale * scale and in scale * sum, then is added once, or twice where
// there are minima. Outliers come last, one addition each, with a weight that took two roundings to
// unpack. bfloat16 products are exact.
double roundings(WeightFormat format, int64_t k, int64_t outliers) {
  switch (format) {
    case WeightFormat::kF32:
      return static_cast<double>(k) + 1;
    case WeightFormat::kBf16:
      return static_cast<double>(k);
    case WeightFormat::kU4:
    case WeightFormat::kU8:
      return static_cast<double>(k / 32 * 2 + outliers) + 3;
    case WeightFormat::kS8:
      return static_cast<double>(k / 32 + outliers) + 3;
    case WeightFormat::kS8x16:
      return static_cast<double>(k / 16 + outliers) + 3;
    case WeightFormat::kI8:  // the whole sum is one integer
      return static_cast<double>(outliers) + 3;
  }
  return 0.0;
}

struct Problem {
  Problem(QuantType type, WeightFormat format, int64_t n, int64_t k, int64_t m, uint32_t seed)
      : random(seed),
        pool(1),
        linear(k, std::vector<WeightFormat>((n + 31) / 32, format), &arena),
        acts(m, linear.padded_k(), act_format(format), kHeadOutlierShare) {
    const std::vector<uint8_t> rows = random_rows(type, n, k, random);
    linear.pack(type, rows.data(), n, {n, 0, 0, 1}, pool);
    std::vector<float> x(linear.padded_k());
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t i = 0; i < linear.padded_k(); ++i)
        x[i] = i < k ? uniform(random, -2.0f, 2.0f) : 0.0f;
      if (r == 1) std::fill(x.begin(), x.end(), 0.0f);  // a row of zeros has a scale of 0
      if (r == 3) x[0] = -40.0f, x[k - 1] = 33.0f;      // outliers, first and last of the row
      kernels()->store_acts(acts.format(), x.data(), linear.padded_k() / 32, acts.buffer(),
                            acts.chunk(r, 0), 1);
    }
  }

  // Activation as the kernel sees it, after rounding or quantization.
  double activation(int64_t row, int64_t i) const {
    const ActView v = acts.view();
    if (acts.format() == ActFormat::kF32) return v.f32[row * v.k + i];
    if (acts.format() == ActFormat::kBf16) return bf16_value(v.bf16[row * v.k + i]);
    const int64_t chunk = (row * v.k + i) / 32;
    const float scale = v.scale[acts.format() == ActFormat::kRowQ8 ? row : chunk];
    const ActBuffer& b = acts.buffer();
    if (i % 32 == b.outlier_at[chunk]) return b.outlier[chunk];
    return static_cast<double>(v.q[row * v.k + i]) * scale;
  }

  int64_t outliers(int64_t row) const {
    if (!has_outliers(acts.format())) return 0;
    const uint8_t* first = acts.buffer().outlier_at + acts.chunk(row, 0);
    return acts.k() / kGroup - std::count(first, first + acts.k() / kGroup, kNoOutlier);
  }

  // Nothing of these rows may reach another row's sum.
  void poison(int64_t row) {
    const ActBuffer& b = acts.buffer();
    const int64_t chunk = acts.chunk(row, 0);
    for (int64_t i = chunk * kGroup; i < chunk * kGroup + acts.k(); ++i) {
      if (acts.format() == ActFormat::kF32) b.f32[i] = NAN;
      if (acts.format() == ActFormat::kBf16) b.bf16[i] = 0x7fff;
      if (has_outliers(acts.format())) b.q[i] = -128;
    }
    if (acts.format() == ActFormat::kRowQ8) {
      b.scale[row] = NAN;
      b.row_sum[row] = 1 << 30;
    }
    for (int64_t c = chunk; acts.format() == ActFormat::kQ8 && c < chunk + acts.k() / kGroup; ++c) {
      b.scale[c] = b.sum[c] = b.outlier[c] = NAN;
      b.outlier_at[c] = 31;
    }
  }

  std::vector<float> multiply(int64_t tile, int64_t row, int64_t rows) {
    std::vector<float> out(rows * kTileCols);
    Beside beside;
    GemmInput input(*kernels(), acts, &lists, &beside);
    input.set_rows(row, row + rows);
    input.multiply(linear, tile, {}, out.data());
    return out;
  }

  Random random;
  ThreadPool pool;
  Arena arena;
  Linear linear;
  Acts acts;
  GemmInput::Lists lists;
};

void check_against_double(const Problem& p, int64_t tile, int64_t row, const float* got) {
  const Linear::Tile& t = p.linear.tile(tile);
  const int64_t k = p.linear.padded_k();
  std::vector<float> column(k);
  for (int c = 0; c < kTileCols; ++c) {
    kernels()->tile_column(t.format, t.data, k, c, column.data());
    double sum = 0.0, magnitude = 0.0;
    for (int64_t i = 0; i < k; ++i) {
      const PackedWeight w = packed_weight(t, i, c);
      CHECK(std::fabs(column[i] - w.value()) <= gamma_n(2) * w.magnitude(), "column %d k %ld", c,
            i);
      sum += p.activation(row, i) * w.value();
      magnitude += std::fabs(p.activation(row, i)) * w.magnitude();
    }
    // Besides, a product of bfloat16 below 2^-126 may count as zero.
    const double bound = gamma_n(roundings(t.format, k, p.outliers(row))) * magnitude +
                         static_cast<double>(k) * 0x1p-126;
    CHECK(std::fabs(sum - got[c]) <= bound, "format %d k %ld row %ld col %d: %g != %g within %g",
          static_cast<int>(t.format), k, row, c, static_cast<double>(got[c]), sum, bound);
  }
}

void check_problem(QuantType type, WeightFormat format, int64_t n, int64_t k, uint32_t seed) {
  constexpr int64_t kRows = 9;  // more than any kernel takes at once
  Problem p(type, format, n, k, kRows, seed);
  for (int64_t tile = 0; tile < p.linear.num_tiles(); ++tile) {
    std::vector<std::vector<float>> alone;
    for (int64_t r = 0; r < kRows; ++r) {
      alone.push_back(p.multiply(tile, r, 1));
      check_against_double(p, tile, r, alone.back().data());
    }
    for (int64_t rows = 2; rows <= kRows; ++rows) {
      for (int64_t first = 0; first + rows <= kRows; ++first) {
        const std::vector<float> together = p.multiply(tile, first, rows);
        for (int64_t r = 0; r < rows; ++r) {
          CHECK(same_bits(&together[r * kTileCols], alone[first + r].data(), kTileCols),
                "format %d k %ld rows %ld row %ld", static_cast<int>(format), k, rows, r);
        }
      }
    }
    if (tile > 0) continue;
    Problem poisoned(type, format, n, k, kRows, seed);
    for (int64_t r : {0, 2, 8}) poisoned.poison(r);
    for (const auto& [first, rows] : {std::pair{1, 1}, {3, 5}, {3, 4}, {7, 1}}) {
      const std::vector<float> out = poisoned.multiply(0, first, rows);
      for (int64_t r = 0; r < rows; ++r) {
        CHECK(same_bits(&out[r * kTileCols], alone[first + r].data(), kTileCols),
              "format %d k %ld: row %ld beside poison", static_cast<int>(format), k, first + r);
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
    for (int64_t k : {32, 96, 160}) {  // whole groups, where the file's blocks allow it
      if (row_bytes(type, k) > 0) check_problem(type, packed_format(type), 1, k, ++seed);
    }
  }
  for (int64_t k : {256, 512}) {  // quantized when they are packed
    check_problem(QuantType::kBF16, WeightFormat::kU4, 33, k, ++seed);
    check_problem(QuantType::kF16, WeightFormat::kS8, 33, k, ++seed);
    check_problem(QuantType::kBF16, WeightFormat::kI8, 70, k, ++seed);
  }
  for (int64_t k : {1, 2, 17, 31, 33, 48, 63, 100}) {  // not whole groups
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

}  // namespace octavo::test
