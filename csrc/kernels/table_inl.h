// The function table of a tier, from the kernels above it. Included inside a tier's namespace,
// last.

template <WeightFormat F>
static constexpr GemmFn grouped(int rows) {
  return rows == 1   ? gemm_grouped<F, 1>
         : rows == 2 ? gemm_grouped<F, 2>
         : rows == 3 ? gemm_grouped<F, 3>
                     : gemm_grouped<F, 4>;
}

static constexpr KernelTable kTable = {
    .name = OCTAVO_TIER_NAME,
    .gemm =
        {
            {gemm_f32<1>, gemm_f32<2>, gemm_f32<3>, gemm_f32<4>},
            {gemm_bf16<1>, gemm_bf16<2>, gemm_bf16<3>, gemm_bf16<4>},
            {grouped<WeightFormat::kU4>(1), grouped<WeightFormat::kU4>(2),
             grouped<WeightFormat::kU4>(3), grouped<WeightFormat::kU4>(4)},
            {grouped<WeightFormat::kS8>(1), grouped<WeightFormat::kS8>(2),
             grouped<WeightFormat::kS8>(3), grouped<WeightFormat::kS8>(4)},
            {grouped<WeightFormat::kS8x16>(1), grouped<WeightFormat::kS8x16>(2),
             grouped<WeightFormat::kS8x16>(3), grouped<WeightFormat::kS8x16>(4)},
            {grouped<WeightFormat::kU8>(1), grouped<WeightFormat::kU8>(2),
             grouped<WeightFormat::kU8>(3), grouped<WeightFormat::kU8>(4)},
        },
    .add_outliers = {nullptr, nullptr, add_outliers<WeightFormat::kU4>,
                     add_outliers<WeightFormat::kS8>, add_outliers<WeightFormat::kS8x16>,
                     add_outliers<WeightFormat::kU8>},
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
    .argmax = argmax,
    .log_sum_exp = log_sum_exp,
    .exp_scaled = exp_scaled,
    .peak = {peak_f32, peak_bf16, peak_int8},
};
