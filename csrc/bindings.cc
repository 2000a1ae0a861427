// The Python module octavo._C: translates arrays to pointers and calls. It decides nothing.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "plan/plan.h"
#include "plan/probes.h"

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT: the literal operator is the point

namespace octavo {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Int32s = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Page = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutPage = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutInt32s = nb::ndarray<int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutFloats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutRows = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

const KernelTable& chosen_kernels() {
  const KernelTable* table = kernels();
  if (table == nullptr) {
    throw std::invalid_argument(std::string("OCTAVO_ISA must be one of ") + supported_isas() +
                                " on this processor");
  }
  return *table;
}

// Records come as int32 words; a Draw is 24 of them. Layouts are checked at compile time below.
static_assert(sizeof(SequenceStep) == 4 * 4);
static_assert(sizeof(RowRequest) == 6 * 4);
static_assert(sizeof(Draw) == 24 * 4);

// Ids come from the scheduler; a wrong one would be read or written outside of its array.
void check_ids(const int32_t* ids, int64_t count, int32_t limit, const char* message) {
  for (int64_t i = 0; i < count; ++i) require(ids[i] >= 0 && ids[i] < limit, message);
}

void run(Plan& plan, Int32s tokens, Int32s sequences, Int32s tables, Int32s copies, Int32s rows,
         Int32s draws, Int32s ids, Floats bias_values, Int32s masks, OutInt32s out_tokens,
         OutFloats out_logprobs, OutInt32s out_top_ids, OutFloats out_top_logprobs,
         std::optional<OutRows> logits, Int32s hidden_rows, OutRows out_hidden) {
  StepInput in;
  in.token_ids = tokens.data();
  in.num_tokens = static_cast<int32_t>(tokens.size());
  require(in.num_tokens <= plan.shape().max_tokens, "more tokens than the plan has room for");
  in.sequences = reinterpret_cast<const SequenceStep*>(sequences.data());
  in.num_sequences = static_cast<int32_t>(sequences.size() / 4);
  in.block_tables = tables.data();
  in.copies = copies.data();
  in.num_copies = static_cast<int32_t>(copies.size() / 2);
  in.rows = reinterpret_cast<const RowRequest*>(rows.data());
  in.num_rows = static_cast<int32_t>(rows.size() / 6);
  in.draws = reinterpret_cast<const Draw*>(draws.data());
  in.num_draws = static_cast<int32_t>(draws.size() / 24);
  check_ids(in.token_ids, in.num_tokens, plan.shape().vocab_size, "token id out of the vocabulary");
  check_ids(in.block_tables, static_cast<int64_t>(tables.size()), plan.shape().num_blocks,
            "block id out of the pool");
  check_ids(in.copies, static_cast<int64_t>(copies.size()), plan.shape().num_blocks,
            "copied block id out of the pool");
  in.ids = ids.data();
  check_ids(in.ids, static_cast<int64_t>(ids.size()), plan.shape().vocab_size,
            "sampling refers to a token id out of the vocabulary");
  in.bias_values = bias_values.data();
  in.masks = reinterpret_cast<const uint32_t*>(masks.data());
  const int64_t num_masks =
      static_cast<int64_t>(masks.size()) / mask_words(plan.shape().vocab_size);
  for (int32_t i = 0; i < in.num_draws; ++i) {
    require(in.draws[i].mask >= -1 && in.draws[i].mask < num_masks, "a draw's mask is missing");
  }
  if (logits.has_value()) {
    require(static_cast<int64_t>(logits->shape(0)) == in.num_rows &&
                static_cast<int64_t>(logits->shape(1)) == plan.shape().vocab_size,
            "logits must be [rows][vocabulary]");
    in.logits = logits->data();
  }
  in.hidden_rows = hidden_rows.data();
  in.num_hidden_rows = static_cast<int32_t>(hidden_rows.size());
  check_ids(in.hidden_rows, in.num_hidden_rows, in.num_tokens, "hidden row out of the step");
  require(static_cast<int64_t>(out_hidden.shape(0)) == in.num_hidden_rows &&
              static_cast<int64_t>(out_hidden.shape(1)) == plan.shape().hidden_size,
          "hidden states must be [rows][hidden size]");
  // tokens, errors and ranks share one array: [draws], [draws], [draws + rows].
  const size_t draws_and_rows = static_cast<size_t>(in.num_draws + in.num_rows);
  require(out_tokens.size() >= 2 * static_cast<size_t>(in.num_draws) + draws_and_rows &&
              out_logprobs.size() >= draws_and_rows &&
              out_top_ids.size() == out_top_logprobs.size(),
          "output arrays are too small");
  StepOutput out;
  out.tokens = out_tokens.data();
  out.errors = out.tokens + in.num_draws;
  out.ranks = out.errors + in.num_draws;
  out.logprobs = out_logprobs.data();
  out.top_ids = out_top_ids.data();
  out.top_logprobs = out_top_logprobs.data();
  out.hidden = out_hidden.data();
  nb::gil_scoped_release release;
  plan.run(in, out);
}

void check_page(const Plan& plan, int32_t block, size_t num_bytes) {
  require(block >= 0 && block < plan.shape().num_blocks, "block id out of the pool");
  require(num_bytes == static_cast<size_t>(plan.page_bytes()), "a page has another size");
}

void read_page(const Plan& plan, int32_t block, OutPage page) {
  check_page(plan, block, page.size());
  nb::gil_scoped_release release;
  plan.read_page(block, page.data());
}

void write_page(Plan& plan, int32_t block, Page page) {
  check_page(plan, block, page.size());
  nb::gil_scoped_release release;
  plan.write_page(block, page.data());
}

void pack(Plan& plan, int linear, QuantType type, Bytes rows, int64_t rows_per_block,
          int64_t first_tile, int64_t block_stride, int64_t tile_stride) {
  require(is_known(type), "unknown quantization type");
  const int64_t num_rows = static_cast<int64_t>(rows.shape(0));
  require(static_cast<int64_t>(rows.shape(1)) == row_bytes(type, plan.linear_k(linear)),
          "rows are not as long as the matrix");
  nb::gil_scoped_release release;
  plan.pack(linear, type, rows.data(), num_rows,
            {rows_per_block, first_tile, block_stride, tile_stride});
}

std::vector<float> to_vector(Floats values) {
  return std::vector<float>(values.data(), values.data() + values.size());
}

void bind_shape(nb::module_& m) {
  nb::class_<ModelShape>(m, "ModelShape", "The numbers of a model that the ops share.")
      .def(nb::init<>())
      .def_rw("hidden_size", &ModelShape::hidden_size)
      .def_rw("num_heads", &ModelShape::num_heads)
      .def_rw("num_kv_heads", &ModelShape::num_kv_heads)
      .def_rw("head_dim", &ModelShape::head_dim)
      .def_rw("intermediate_size", &ModelShape::intermediate_size)
      .def_rw("vocab_size", &ModelShape::vocab_size)
      .def_rw("num_layers", &ModelShape::num_layers)
      .def_rw("norm_eps", &ModelShape::norm_eps)
      .def_rw("attention_scale", &ModelShape::attention_scale)
      .def_rw("max_tokens", &ModelShape::max_tokens)
      .def_rw("num_blocks", &ModelShape::num_blocks)
      .def_rw("block_size", &ModelShape::block_size)
      .def_rw("kv_format", &ModelShape::kv_format);
}

void bind_enums(nb::module_& m) {
  nb::enum_<WeightFormat>(m, "WeightFormat", "How packed weights lie in memory.")
      .value("F32", WeightFormat::kF32)
      .value("BF16", WeightFormat::kBf16)
      .value("U4", WeightFormat::kU4)
      .value("S8", WeightFormat::kS8)
      .value("S8X16", WeightFormat::kS8x16)
      .value("U8", WeightFormat::kU8)
      .value("I8", WeightFormat::kI8);
  nb::enum_<ActFormat>(m, "ActFormat", "Numbers that are multiplied with the weights.")
      .value("F32", ActFormat::kF32)
      .value("BF16", ActFormat::kBf16)
      .value("INT8", ActFormat::kQ8);
  nb::enum_<KvFormat>(m, "KvFormat", "Numbers of the cache.")
      .value("F32", KvFormat::kF32)
      .value("BF16", KvFormat::kBf16)
      .value("INT8", KvFormat::kInt8)
      .value("FP8", KvFormat::kFp8);
  nb::enum_<Activation>(m, "Activation", "The function on the gate half of the feed-forward layer.")
      .value("SILU", Activation::kSilu)
      .value("GELU_TANH", Activation::kGeluTanh);
}

void bind_plan(nb::module_& m) {
  nb::class_<Plan>(m, "Plan", "Packed weights, the block pool, and the ops of a step.")
      .def("__init__",
           [](Plan* self, const ModelShape& shape, int num_threads) {
             require(num_threads >= 1, "num_threads must be at least 1");
             new (self) Plan(shape, chosen_kernels(), num_threads);
           })
      .def("add_linear", &Plan::add_linear, "k"_a, "formats"_a)
      .def(
          "pack",
          [](Plan& plan, int linear, int type, Bytes rows, int64_t rows_per_block,
             int64_t first_tile, int64_t block_stride, int64_t tile_stride) {
            pack(plan, linear, static_cast<QuantType>(type), rows, rows_per_block, first_tile,
                 block_stride, tile_stride);
          },
          "linear"_a, "type"_a, "rows"_a, "rows_per_block"_a, "first_tile"_a, "block_stride"_a,
          "tile_stride"_a)
      .def("add_vector",
           [](Plan& plan, Floats values) { return plan.add_vector(to_vector(values)); })
      .def(
          "add_rope",
          [](Plan& plan, std::vector<double> inv_freq, double attention_factor) {
            return plan.add_rope({std::move(inv_freq), attention_factor});
          },
          "inv_freq"_a, "attention_factor"_a)
      .def("add_embed", &Plan::add_embed, "embedding"_a, "multiplier"_a)
      .def("add_norm", &Plan::add_norm, "post_weight"_a, "weight"_a, "reader"_a)
      .def("add_qkv", &Plan::add_qkv, "linear"_a, "bias"_a, "query_norm"_a, "key_norm"_a, "layer"_a,
           "rope"_a)
      .def("add_attention", &Plan::add_attention, "layer"_a, "window"_a, "reader"_a)
      .def("add_output", &Plan::add_output, "linear"_a, "bias"_a, "to_branch"_a)
      .def("add_gate_up", &Plan::add_gate_up, "linear"_a, "bias"_a, "activation"_a, "reader"_a)
      .def("add_down", &Plan::add_down, "linear"_a, "bias"_a, "to_branch"_a)
      .def("set_head", &Plan::set_head, "linear"_a, "norm_weight"_a)
      .def("run", &run, "tokens"_a, "sequences"_a, "tables"_a, "copies"_a, "rows"_a, "draws"_a,
           "ids"_a, "bias_values"_a, "masks"_a, "out_tokens"_a, "out_logprobs"_a, "out_top_ids"_a,
           "out_top_logprobs"_a, "logits"_a.none(), "hidden_rows"_a, "out_hidden"_a)
      .def("read_page", &read_page, "block"_a, "page"_a,
           "Copies one block, all layers in one piece.")
      .def("write_page", &write_page, "block"_a, "page"_a, "Fills one block with what was read.")
      .def("grow_pool", &Plan::grow_pool, nb::call_guard<nb::gil_scoped_release>(),
           "Prepares memory for blocks to come; whether more is to be done.")
      .def("set_profiling", &Plan::set_profiling, "on"_a)
      .def("profile", &Plan::profile, "Seconds by op since profiling was turned on.")
      .def_prop_ro("weight_bytes", &Plan::weight_bytes)
      .def_prop_ro("page_bytes", &Plan::page_bytes)
      .def_prop_ro("pool_bytes", &Plan::pool_bytes)
      .def_prop_ro("scratch_bytes", &Plan::scratch_bytes);
}

}  // namespace

NB_MODULE(_C, m) {
  m.doc() = "Octavo's CPU kernels and the plan that runs them.";
  bind_enums(m);
  bind_shape(m);
  bind_plan(m);
  m.def(
      "packed_format",
      [](int type) {
        require(is_known(static_cast<QuantType>(type)), "unknown quantization type");
        return packed_format(static_cast<QuantType>(type));
      },
      "The packed form that holds a file's quantization type.");
  m.def("act_format", &act_format, "format"_a,
        "The activations that packed weights multiply with.");
  m.def(
      "isa", [] { return std::string(chosen_kernels().name); },
      "The instruction set in use, one of supported_isas() (forced by OCTAVO_ISA).");
  m.def("supported_isas", [] { return std::string(supported_isas()); });
  m.def("read_bandwidth", &read_bandwidth, "num_bytes"_a, "num_threads"_a,
        nb::call_guard<nb::gil_scoped_release>(),
        "Bytes per second that all threads together read from memory; median of five passes.");
  m.def("barrier_latency", &barrier_latency, "num_threads"_a,
        nb::call_guard<nb::gil_scoped_release>(),
        "Seconds that one barrier of all threads takes; the median of many rounds, in the best of "
        "several pools.");
  m.def(
      "operation_rate",
      [](ActFormat format, int num_threads) {
        nb::gil_scoped_release release;
        return operation_rate(chosen_kernels(), format, num_threads);
      },
      "format"_a, "num_threads"_a,
      "Multiplications and additions per second of all threads together, without loads; the best "
      "of five passes.");
}

}  // namespace octavo
