// Work on one row of activations: norms, quantization, gating, rotary embedding. Included inside a
// tier's namespace. Rows are padded with zeros to a multiple of 32.

static void rms_norm(const float* x, const float* weight, float eps, int64_t count, int64_t n,
                     float* dst) {
  VecF squares = zero();
  for (int64_t i = 0; i < n; i += 16) {
    const VecF v = load(x + i);
    squares = fma(v, v, squares);
  }
  const float mean = reduce_sum(squares) / static_cast<float>(count);
  const VecF factor = splat(1.0f / __builtin_sqrtf(mean + eps));
  for (int64_t i = 0; i < n; i += 16) {
    store(dst + i, mul(mul(load(x + i), factor), load(weight + i)));
  }
}

static void add_to(float* x, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) store(x + i, add(load(x + i), load(y + i)));
}

static void scale_row(float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) store(x + i, mul(load(x + i), splat(factor)));
}

// Symmetric int8 with one scale for 32 numbers: q = round(x * 127 / max|x|).
//
// A number that alone holds most of the 32 numbers' energy would leave the others a handful of
// steps; it is left out, to be multiplied in float (docs/decisions/0002-outliers.md).
class ChunkQuantizer {
 public:
  // Several are read before any is written: what reductions wait for overlaps.
  inline void read(const float* x) {
    const VecF a = load(x), b = load(x + 16);
    x_ = x;
    largest_ = reduce_max(vmax(vabs(a), vabs(b)));
    energy_ = reduce_sum(fma(a, a, mul(b, b)));
  }
  inline void write(const ActBuffer& dst, int64_t chunk) {
    VecF a = load(x_), b = load(x_ + 16);
    uint8_t at = kNoOutlier;
    if (largest_ * largest_ > dst.outlier_share * energy_) {
      at = leave_out(&a, &b, dst.outlier + chunk);
    }
    dst.outlier_at[chunk] = at;
    const float scale = largest_ / 127.0f;
    const VecF inverse = splat(scale > 0.0f ? 127.0f / largest_ : 0.0f);
    int8_t* q = dst.q + chunk * kGroup;
    store_i8(q, to_int(mul(a, inverse)));
    store_i8(q + 16, to_int(mul(b, inverse)));
    const int32_t sum_a = sum_i8(q), sum_b = sum_i8(q + 16);
    dst.scale[chunk] = scale;
    dst.sum16[2 * chunk] = sum_a;
    dst.sum16[2 * chunk + 1] = sum_b;
    dst.sum[chunk] = scale * static_cast<float>(sum_a + sum_b);
  }

 private:
  inline uint8_t leave_out(VecF* a, VecF* b, float* value) {
    const int in_a = lane_of(vabs(*a), largest_), in_b = lane_of(vabs(*b), largest_);
    *value = in_a < 16 ? lane(*a, in_a) : lane(*b, in_b);
    if (in_a < 16) {
      *a = zero_lane(*a, in_a);
    } else {
      *b = zero_lane(*b, in_b);
    }
    largest_ = reduce_max(vmax(vabs(*a), vabs(*b)));
    return static_cast<uint8_t>(in_a < 16 ? in_a : 16 + in_b);
  }

  const float* x_;
  float largest_, energy_;
};

static void quantize_chunks(const float* x, int64_t num_chunks, const ActBuffer& dst, int64_t chunk,
                            int64_t stride) {
  constexpr int kTogether = 4;
  ChunkQuantizer quantizers[kTogether];
  while (num_chunks > 0) {
    const int count = num_chunks < kTogether ? static_cast<int>(num_chunks) : kTogether;
    for (int i = 0; i < count; ++i) quantizers[i].read(x + i * kGroup);
    for (int i = 0; i < count; ++i) quantizers[i].write(dst, chunk + i * stride);
    x += count * kGroup, chunk += count * stride, num_chunks -= count;
  }
}

// A number beyond this many times the root mean square of its row is left out of int8, at most one
// of 32 (docs/decisions/0013-int8.md).
constexpr float kRowOutlier = 8.0f;

// Marks the largest of 32 numbers as left out and returns the largest magnitude of the others.
static inline float leave_one_out(const float* x, const ActBuffer& dst, int64_t chunk) {
  VecF a = vabs(load(x)), b = vabs(load(x + 16));
  const float largest = reduce_max(vmax(a, b));
  const int in_a = lane_of(a, largest), in_b = lane_of(b, largest);
  const int at = in_a < 16 ? in_a : 16 + in_b;
  if (at < 16) {
    a = zero_lane(a, at);
  } else {
    b = zero_lane(b, in_b);
  }
  dst.outlier[chunk] = x[at];
  dst.outlier_at[chunk] = static_cast<uint8_t>(at);
  return reduce_max(vmax(a, b));
}

// Symmetric int8 with one scale for a row of num_chunks * 32 numbers. No fused operations: which
// numbers are left out is the same on every tier. A row that is not finite gets a scale of NaN.
static void quantize_row(const float* x, int64_t num_chunks, const ActBuffer& dst, int64_t row) {
  const int64_t n = num_chunks * kGroup, first_chunk = row * num_chunks;
  int8_t* q = dst.q + row * n;
  VecF squares = zero();
  for (int64_t i = 0; i < n; i += 16) squares = add(squares, mul(load(x + i), load(x + i)));
  const float mean = reduce_sum(squares) / static_cast<float>(n);
  const bool is_finite = mean <= 3.4028234663852886e38f;
  const float limit = kRowOutlier * __builtin_sqrtf(mean);
  VecF largest = zero();
  float top = is_finite ? 0.0f : __builtin_nanf("");  // then the larger of what is beside outliers
  for (int64_t c = 0; c < num_chunks; ++c) {
    const VecF both = vmax(vabs(load(x + c * kGroup)), vabs(load(x + c * kGroup + 16)));
    dst.outlier_at[first_chunk + c] = kNoOutlier;
    if (is_finite && any_above(both, limit)) {
      const float others = leave_one_out(x + c * kGroup, dst, first_chunk + c);
      top = others > top ? others : top;
    } else {
      largest = vmax(both, largest);
    }
  }
  const float within = reduce_max(largest);
  top = within > top ? within : top;
  const VecF inverse = splat(top > 0.0f ? 127.0f / top : 0.0f);
  VecI sums = splat_int(0);
  for (int64_t i = 0; i < n; i += 16) {
    // An outlier is out of range until it is set to 0 below; NaN times 0 must not reach to_int.
    const VecF scaled = is_finite ? mul(load(x + i), inverse) : zero();
    const VecI rounded = to_int(vmin(splat(127.0f), vmax(splat(-127.0f), scaled)));
    store_i8(q + i, rounded);
    sums = add_int(sums, rounded);
  }
  int32_t sum = reduce_sum_int(sums);
  for (int64_t c = 0; c < num_chunks; ++c) {
    const uint8_t at = dst.outlier_at[first_chunk + c];
    if (at != kNoOutlier) {
      int8_t& left_out = q[c * kGroup + at];
      sum -= left_out;
      left_out = 0;
    }
  }
  dst.scale[row] = top / 127.0f;
  dst.row_sum[row] = sum;
}

static void store_acts(ActFormat format, const float* x, int64_t num_chunks, const ActBuffer& dst,
                       int64_t chunk, int64_t stride) {
  switch (format) {
    case ActFormat::kF32:
      for (int64_t c = 0; c < num_chunks; ++c, x += kGroup, chunk += stride) {
        store(dst.f32 + chunk * kGroup, load(x));
        store(dst.f32 + chunk * kGroup + 16, load(x + 16));
      }
      return;
    case ActFormat::kBf16:
      for (int64_t c = 0; c < num_chunks; ++c, x += kGroup, chunk += stride) {
        store_bf16(dst.bf16 + chunk * kGroup, load(x));
        store_bf16(dst.bf16 + chunk * kGroup + 16, load(x + 16));
      }
      return;
    case ActFormat::kQ8:
      return quantize_chunks(x, num_chunks, dst, chunk, stride);
    case ActFormat::kRowQ8:
      return quantize_row(x, num_chunks, dst, chunk / num_chunks);
  }
}

static void gate(Activation kind, const float* g, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += 16) {
    const VecF x = load(g + i);
    VecF inner = x;
    if (kind == Activation::kGeluTanh) {
      // gelu(x) = x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 x^3))
      const VecF cubic = mul(mul(x, x), mul(x, splat(0.044715f)));
      inner = mul(add(x, cubic), splat(1.5957691216057308f));
    }
    store(out + i, mul(mul(x, sigmoid(inner)), load(up + i)));
  }
}

static void rope(float* x, const float* cos, const float* sin, int64_t half) {
  // No vectors: half may be any number, and the compiler vectorises this without changing results.
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

static bool is_drawable(const float* x, int64_t n) {
  const float largest_finite = 3.4028234663852886e38f;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    if (any_above(load(x + i), largest_finite)) return false;
  }
  for (; i < n; ++i) {
    if (!(x[i] <= largest_finite)) return false;
  }
  return true;
}

static int64_t argmax(const float* x, int64_t n) {
  VecF best = splat(-__builtin_inff());
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) best = vmax(load(x + i), best);
  float largest = reduce_max(best);
  for (; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  int64_t index = 0;
  while (index < n - 1 && x[index] != largest) ++index;
  return index;
}

static void keep_best(const float* x, int64_t n, int32_t first, BestToken* best) {
  // Nearly every tile ends here: nothing in it beats what was seen before.
  if (n == kTileCols && !any_above(load(x), best->value) && !any_above(load(x + 16), best->value)) {
    return;
  }
  best->drawable &= is_drawable(x, n);
  const int64_t i = argmax(x, n);
  if (x[i] > best->value) {
    best->value = x[i];
    best->token = first + static_cast<int32_t>(i);
  }
}

static void hide(float* x, int64_t n, uint32_t allowed) {
  // Both loops become selects of whole vectors: a branch for each column costs more than the rest
  // of a draw.
  const auto hide_one = [&](int64_t i) {
    x[i] = (allowed >> i & 1) != 0 ? x[i] : -__builtin_inff();
  };
  if (n == kTileCols) {
    for (int64_t i = 0; i < kTileCols; ++i) hide_one(i);
  } else {
    for (int64_t i = 0; i < n; ++i) hide_one(i);
  }
}

static void keep_best_allowed(float* x, int64_t n, uint32_t allowed, int32_t first,
                              BestToken* best) {
  if (n == kTileCols && !any_above(load(x), best->value) && !any_above(load(x + 16), best->value)) {
    return;
  }
  best->drawable &= is_drawable(x, n);
  if (allowed == 0) return;
  hide(x, n, allowed);
  keep_best(x, n, first, best);
}

static double log_sum_exp(const float* x, int64_t n, float max) {
  // Lanes are summed in float over 1,024 numbers at a time, then in double.
  double total = 0.0;
  for (int64_t start = 0; start < n; start += 1024) {
    const int64_t end = start + 1024 < n ? start + 1024 : n;
    VecF sum = zero();
    int64_t i = start;
    for (; i + 16 <= end; i += 16) sum = add(sum, expv(sub(load(x + i), splat(max))));
    if (i < end) {
      alignas(64) float tail[16];
      for (int j = 0; j < 16; ++j) tail[j] = i + j < end ? x[i + j] : -__builtin_inff();
      sum = add(sum, expv(sub(load(tail), splat(max))));
    }
    total += static_cast<double>(reduce_sum(sum));
  }
  return static_cast<double>(max) + __builtin_log(total);
}

static void exp_scaled(const float* x, float max, float inv_temperature, int64_t n, float* p) {
  for (int64_t i = 0; i < n; i += 16) {
    store(p + i, expv(mul(sub(load(x + i), splat(max)), splat(inv_temperature))));
  }
}
