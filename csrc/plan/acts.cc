#include "plan/acts.h"

#include <cstring>

namespace octavo {
namespace {

constexpr int64_t kAlign = 64;
int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

Acts::Acts(int64_t max_rows, int64_t k, ActFormat format, float outlier_share)
    : format_(format), k_(k) {
  const int64_t numbers = max_rows * k, chunks = numbers / kGroup;
  if (format == ActFormat::kF32) {
    memory_ = Buffer(numbers * sizeof(float));
    buffer_.f32 = memory_.as<float>();
  } else if (format == ActFormat::kBf16) {
    memory_ = Buffer(numbers * sizeof(uint16_t));
    buffer_.bf16 = memory_.as<uint16_t>();
  } else {
    const int64_t scales = aligned(chunks * sizeof(float));
    // Both int8 forms: each has sums of its own, and a scale for 32 numbers or for a row.
    const bool grouped = format == ActFormat::kQ8;
    const int64_t sums = aligned((grouped ? 2 * chunks : max_rows) * sizeof(int32_t));
    memory_ = Buffer(aligned(numbers) + (grouped ? 3 : 2) * scales + sums + chunks);
    uint8_t* p = memory_.data();
    buffer_.q = reinterpret_cast<int8_t*>(p), p += aligned(numbers);
    buffer_.scale = reinterpret_cast<float*>(p), p += scales;
    buffer_.outlier = reinterpret_cast<float*>(p), p += scales;
    if (grouped) {
      buffer_.sum = reinterpret_cast<float*>(p), p += scales;
      buffer_.sum16 = reinterpret_cast<int32_t*>(p);
    } else {
      buffer_.row_sum = reinterpret_cast<int32_t*>(p);
    }
    p += sums;
    buffer_.outlier_at = p;
    std::memset(p, kNoOutlier, chunks);  // also where nothing is ever written
    buffer_.outlier_share = outlier_share;
  }
}

ActView Acts::view() const {
  ActView v;
  v.f32 = buffer_.f32;
  v.bf16 = buffer_.bf16;
  v.q = buffer_.q;
  v.scale = buffer_.scale;
  v.sum = buffer_.sum;
  v.sum16 = buffer_.sum16;
  v.row_sum = buffer_.row_sum;
  v.k = k_;
  return v;
}

}  // namespace octavo
