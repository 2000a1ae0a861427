// The function table of a tier, from the kernels above it. Included inside a tier's namespace,
// last.

static void tile_column(WeightFormat format, const uint8_t* tile, int64_t k, int column,
                        float* out) {
  switch (format) {
    case WeightFormat::kF32: {
      const float* w = reinterpret_cast<const float*>(tile);
      for (int64_t i = 0; i < k; ++i) out[i] = w[i * kTileCols + column];
      return;
    }
    case WeightFormat::kBf16: {
      const uint16_t* w = reinterpret_cast<const uint16_t*>(tile);
      for (int64_t i = 0; i < k; ++i) {
        const uint32_t bits = w[(i / 2) * 2 * kTileCols + 2 * column + i % 2];
        const uint32_t wide = bits << 16;
        __builtin_memcpy(out + i, &wide, 4);
      }
      return;
    }
    case WeightFormat::kI8:
      return int8_column(tile, k, column, out);
    case WeightFormat::kU4:
      return grouped_column<WeightFormat::kU4>(tile, k, column, out);
    case WeightFormat::kS8:
      return grouped_column<WeightFormat::kS8>(tile, k, column, out);
    case WeightFormat::kS8x16:
      return grouped_column<WeightFormat::kS8x16>(tile, k, column, out);
    case WeightFormat::kU8:
      return grouped_column<WeightFormat::kU8>(tile, k, column, out);
  }
}

// The kernel of F for R rows, if the tier has one: no instance is made of more rows than it holds.
template <WeightFormat F, int R>
static constexpr GemmFn gemm_of() {
  if constexpr (F == WeightFormat::kF32 || F == WeightFormat::kBf16) {
    if constexpr (R <= kDenseRows) return gemm_dense<F, R>;
  } else if constexpr (F == WeightFormat::kI8) {
    if constexpr (R <= kInt8Rows) return gemm_int8<R>;
  } else {
    if constexpr (R <= kGroupedRows) return gemm_grouped<F, R>;
  }
  return nullptr;
}

static_assert(kMaxRows == 8, "one entry a row");
#define OCTAVO_GEMM_ROWS(F)                                                                     \
  {gemm_of<WeightFormat::F, 1>(), gemm_of<WeightFormat::F, 2>(), gemm_of<WeightFormat::F, 3>(), \
   gemm_of<WeightFormat::F, 4>(), gemm_of<WeightFormat::F, 5>(), gemm_of<WeightFormat::F, 6>(), \
   gemm_of<WeightFormat::F, 7>(), gemm_of<WeightFormat::F, 8>()}

static constexpr KernelTable kTable = {
    .name = OCTAVO_TIER_NAME,
    .gemm = {OCTAVO_GEMM_ROWS(kF32), OCTAVO_GEMM_ROWS(kBf16), OCTAVO_GEMM_ROWS(kU4),
             OCTAVO_GEMM_ROWS(kS8), OCTAVO_GEMM_ROWS(kS8x16), OCTAVO_GEMM_ROWS(kU8),
             OCTAVO_GEMM_ROWS(kI8)},
    .add_outliers = {nullptr, nullptr, add_outliers<WeightFormat::kU4>,
                     add_outliers<WeightFormat::kS8>, add_outliers<WeightFormat::kS8x16>,
                     add_outliers<WeightFormat::kU8>, add_outliers<WeightFormat::kI8>},
    .tile_column = tile_column,
    .rms_norm = rms_norm,
    .add_to = add_to,
    .scale = scale_row,
    .store_acts = store_acts,
    .gate = gate,
    .rope = rope,
    .write_kv = write_kv,
    .attention = attention,
    .is_drawable = is_drawable,
    .keep_best = keep_best,
    .keep_best_allowed = keep_best_allowed,
    .hide = hide,
    .argmax = argmax,
    .log_sum_exp = log_sum_exp,
    .exp_scaled = exp_scaled,
    .peak = {peak_f32, peak_bf16, peak_int8},
};
