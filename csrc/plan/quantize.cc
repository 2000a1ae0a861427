#include "plan/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace octavo {
namespace {

constexpr int kNumbers = 32;

float as_half(float x) { return half_to_float(float_to_half(x)); }

// Nearest whole number, ties to even, of |x| below 2^22. A library call would not be vectorised.
float nearest(float x) { return (x + 12582912.0f) - 12582912.0f; }

float largest_magnitude(const float* x, int64_t n) {
  float top = 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return std::numeric_limits<float>::quiet_NaN();
    top = std::max(top, std::fabs(x[i]));
  }
  return top;
}

QuantGroup not_a_number() {
  QuantGroup g{};
  g.scale[0] = g.scale[1] = std::numeric_limits<float>::quiet_NaN();
  return g;
}

// An affine map of the levels 0 .. 15 to numbers.
struct Levels {
  float scale;
  float minimum;

  float level_of(float x, float inverse) const {
    return std::clamp(nearest((x - minimum) * inverse), 0.0f, 15.0f);
  }
  float inverse() const { return scale > 0.0f ? 1.0f / scale : 0.0f; }
};

// The map that fits numbers to their levels under `first` best, in the sense of least squares.
Levels refit(const float* x, const Levels& first) {
  const float inverse = first.inverse();
  float sum_u = 0.0f, sum_uu = 0.0f, sum_x = 0.0f, sum_ux = 0.0f;
  for (int i = 0; i < kNumbers; ++i) {
    const float u = first.level_of(x[i], inverse);
    sum_u += u;
    sum_uu += u * u;
    sum_x += x[i];
    sum_ux += u * x[i];
  }
  const float determinant = kNumbers * sum_uu - sum_u * sum_u;
  if (!(determinant > 0.0f)) return first;  // all on one level
  const float scale = (kNumbers * sum_ux - sum_u * sum_x) / determinant;
  return {scale, (sum_x - scale * sum_u) / kNumbers};
}

float squared_error(const float* x, const Levels& levels) {
  const float inverse = levels.inverse();
  float error = 0.0f;
  for (int i = 0; i < kNumbers; ++i) {
    const float e = levels.scale * levels.level_of(x[i], inverse) + levels.minimum - x[i];
    error += e * e;
  }
  return error;
}

}  // namespace

QuantGroup quantize_u4(const float* x) {
  if (std::isnan(largest_magnitude(x, kNumbers))) return not_a_number();
  const auto [lowest, highest] = std::minmax_element(x, x + kNumbers);
  const float middle = (*lowest + *highest) / 2.0f, range = *highest - *lowest;
  Levels best{};
  float least = std::numeric_limits<float>::infinity();
  constexpr int kClips = 12;
  for (int c = 0; c < kClips; ++c) {  // the whole range, then ever less of it
    const float kept = range * (1.0f - 0.03f * static_cast<float>(c));
    Levels levels = refit(x, {kept / 15.0f, middle - kept / 2.0f});
    levels = {as_half(levels.scale), as_half(levels.minimum)};
    const float error = squared_error(x, levels);
    if (error < least) least = error, best = levels;
  }
  QuantGroup g{};
  g.scale[0] = g.scale[1] = best.scale;
  g.minimum[0] = g.minimum[1] = best.minimum;
  const float inverse = best.inverse();
  for (int i = 0; i < kNumbers; ++i) g.q[i] = static_cast<int16_t>(best.level_of(x[i], inverse));
  return g;
}

QuantGroup quantize_s8(const float* x) {
  const float top = largest_magnitude(x, kNumbers);
  if (std::isnan(top)) return not_a_number();
  QuantGroup g{};
  const float scale = as_half(top / 127.0f);
  g.scale[0] = g.scale[1] = scale;
  const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  for (int i = 0; i < kNumbers; ++i) {
    g.q[i] = static_cast<int16_t>(std::clamp(nearest(x[i] * inverse), -127.0f, 127.0f));
  }
  return g;
}

float quantize_row_s8(const float* x, int64_t k, int8_t* q) {
  const float top = largest_magnitude(x, k);
  const float inverse = top > 0.0f ? 127.0f / top : 0.0f;  // 0 for NaN
  for (int64_t i = 0; i < k; ++i) {
    q[i] = std::isnan(top) ? int8_t{0} : static_cast<int8_t>(nearest(x[i] * inverse));
  }
  return top / 127.0f;
}

}  // namespace octavo
