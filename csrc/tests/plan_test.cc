// A whole small decoder: a sequence's logits are the same bits alone, in a batch, in chunks, with
// other blocks and with more threads.
#include "plan/plan.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "tests/check.h"

namespace octavo::test {
namespace {

constexpr int32_t kVocab = 70, kHidden = 64, kHeads = 6, kKvHeads = 2, kDim = 32, kFfn = 96,
                  kLayers = 2;

struct Settings {
  int threads = 1;
  int32_t block = 16;
  WeightFormat format = WeightFormat::kS8;
  KvFormat cache = KvFormat::kBf16;
  int32_t pool_tokens = 1400;
};

constexpr uint32_t kSeed = 42;

std::vector<uint8_t> random_q8_0(int64_t rows, int64_t k, Random& random) {
  std::vector<uint8_t> bytes(rows * row_bytes(QuantType::kQ8_0, k));
  for (int64_t b = 0; b < static_cast<int64_t>(bytes.size()); b += 34) {
    const uint16_t d = float_to_half(uniform(random, 0.0005f, 0.002f));
    std::memcpy(&bytes[b], &d, 2);
    for (int i = 0; i < 32; ++i) bytes[b + 2 + i] = static_cast<uint8_t>(integer(random, 0, 255));
  }
  return bytes;
}

// Every plan gets the same numbers: the generator starts anew. The embedding, which is also the
// head, comes first.
std::unique_ptr<Plan> build(const Settings& s) {
  ModelShape shape{};
  shape.hidden_size = kHidden;
  shape.num_heads = kHeads;
  shape.num_kv_heads = kKvHeads;
  shape.head_dim = kDim;
  shape.intermediate_size = kFfn;
  shape.vocab_size = kVocab;
  shape.num_layers = kLayers;
  shape.norm_eps = 1e-5f;
  shape.attention_scale = 0.1767767f;
  shape.max_tokens = 700;
  shape.num_blocks = s.pool_tokens / s.block;
  shape.block_size = s.block;
  shape.kv_format = s.cache;
  auto plan = std::make_unique<Plan>(shape, *kernels(), s.threads);
  Random random(kSeed);
  auto matrix = [&](int64_t rows, int64_t k, int64_t rows_per_block, int64_t turns) {
    const int64_t tiles = (rows + 31) / 32 * turns;
    const int linear = plan->add_linear(k, std::vector<WeightFormat>(tiles, s.format));
    for (int64_t turn = 0; turn < turns; ++turn) {
      const std::vector<uint8_t> bytes = random_q8_0(rows, k, random);
      const TileLayout layout{rows_per_block, turn, (rows_per_block + 31) / 32, turns};
      if (s.format == WeightFormat::kI8) {  // made from floats only
        std::vector<float> values(rows * k);
        dequantize_row(QuantType::kQ8_0, bytes.data(), rows * k, values.data());
        plan->pack(linear, QuantType::kF32, reinterpret_cast<const uint8_t*>(values.data()), rows,
                   layout);
      } else {
        plan->pack(linear, QuantType::kQ8_0, bytes.data(), rows, layout);
      }
    }
    return linear;
  };
  const int ones = plan->add_vector(std::vector<float>(kHidden, 1.0f));
  std::vector<double> frequencies(kDim / 2);
  for (int i = 0; i < kDim / 2; ++i) frequencies[i] = 1.0 / (1 + i);
  plan->add_rope({frequencies, 1.0});
  const int embedding = matrix(kVocab, kHidden, kVocab, 1);
  plan->add_embed(embedding, 20.0f);
  for (int layer = 0; layer < kLayers; ++layer) {
    const int qkv = matrix((kHeads + 2 * kKvHeads) * kDim, kHidden, kDim, 1);
    const int output = matrix(kHidden, kHeads * kDim, kHidden, 1);
    const int gate_up = matrix(kFfn, kHidden, kFfn, 2);
    const int down = matrix(kHidden, kFfn, kHidden, 1);
    plan->add_norm(-1, ones, qkv);
    plan->add_qkv(qkv, -1, -1, -1, layer, 0);
    plan->add_attention(layer, layer == 0 ? 100 : 0, output);
    plan->add_output(output, -1, false);
    plan->add_norm(-1, ones, gate_up);
    plan->add_gate_up(gate_up, -1, Activation::kSilu, down);
    plan->add_down(down, -1, false);
  }
  plan->set_head(embedding, ones);
  return plan;
}

struct Part {
  int32_t sequence;
  int32_t first, count;
};

std::vector<int32_t> tokens_of(int32_t sequence) {
  Random random(100 + sequence);
  std::vector<int32_t> tokens(300);
  for (int32_t& t : tokens) t = integer(random, 0, kVocab - 1);
  return tokens;
}

// Runs steps of parts and returns, by sequence, the logits of every token.
std::vector<std::vector<float>> run(Plan& plan, const std::vector<std::vector<Part>>& steps,
                                    int32_t num_sequences) {
  const int32_t block = plan.shape().block_size, per_sequence = (300 + block - 1) / block;
  std::vector<int32_t> pool(plan.shape().num_blocks);
  std::iota(pool.begin(), pool.end(), 0);
  std::shuffle(pool.begin(), pool.end(), Random(block + num_sequences));
  std::vector<std::vector<float>> logits(num_sequences);
  for (const std::vector<Part>& parts : steps) {
    std::vector<int32_t> ids, tables;
    std::vector<SequenceStep> sequences;
    for (const Part& p : parts) {
      const std::vector<int32_t> tokens = tokens_of(p.sequence);
      sequences.push_back({static_cast<int32_t>(ids.size()), p.count, p.first,
                           static_cast<int32_t>(tables.size())});
      ids.insert(ids.end(), tokens.begin() + p.first, tokens.begin() + p.first + p.count);
      tables.insert(tables.end(), pool.begin() + p.sequence * per_sequence,
                    pool.begin() + (p.sequence + 1) * per_sequence);
    }
    std::vector<RowRequest> rows(ids.size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = {static_cast<int32_t>(i), 0, 0, -1, 0, 0};
    std::vector<float> out(ids.size() * kVocab);
    StepInput input;
    input.token_ids = ids.data();
    input.num_tokens = static_cast<int32_t>(ids.size());
    input.sequences = sequences.data();
    input.num_sequences = static_cast<int32_t>(sequences.size());
    input.block_tables = tables.data();
    input.rows = rows.data();
    input.num_rows = static_cast<int32_t>(rows.size());
    input.logits = out.data();
    StepOutput output;
    plan.run(input, output);
    const float* row = out.data();
    for (const Part& p : parts) {
      logits[p.sequence].insert(logits[p.sequence].end(), row, row + int64_t{p.count} * kVocab);
      row += int64_t{p.count} * kVocab;
    }
  }
  return logits;
}

std::vector<std::vector<Part>> chunks_of(int32_t sequence, int32_t chunk) {
  std::vector<std::vector<Part>> steps;
  for (int32_t first = 0; first < 300; first += chunk) {
    steps.push_back({{sequence, first, std::min(chunk, 300 - first)}});
  }
  return steps;
}

}  // namespace

TEST(a_sequence_s_bits_do_not_depend_on_anything_around_it) {
  const std::pair<WeightFormat, KvFormat> modes[] = {{WeightFormat::kF32, KvFormat::kF32},
                                                     {WeightFormat::kS8, KvFormat::kBf16},
                                                     {WeightFormat::kS8, KvFormat::kInt8},
                                                     {WeightFormat::kI8, KvFormat::kFp8}};
  for (const auto& [format_of_mode, cache_of_mode] : modes) {
    const WeightFormat format = format_of_mode;  // lambdas cannot take structured bindings
    const KvFormat cache = cache_of_mode;
    const auto plain = build({1, 16, format, cache});
    const std::vector<float> wanted = run(*plain, chunks_of(0, 300), 1)[0];
    auto check = [&](const std::vector<float>& got, const char* what, int32_t number) {
      CHECK(got.size() == wanted.size() && same_bits(got.data(), wanted.data(), wanted.size()),
            "format %d, cache %d, %s %d", static_cast<int>(format), static_cast<int>(cache), what,
            number);
    };
    for (int32_t chunk : {1, 7, 32}) check(run(*plain, chunks_of(0, chunk), 1)[0], "chunk", chunk);
    for (int32_t block : {32, 64, 128}) {
      check(run(*build({1, block, format, cache}), chunks_of(0, 50), 1)[0], "block size", block);
    }
    const auto parallel = build({3, 16, format, cache});
    check(run(*parallel, chunks_of(0, 300), 1)[0], "threads", 3);
    std::vector<std::vector<Part>> mixed;
    for (int32_t first = 0; first < 300; first += 30) {
      mixed.push_back({{1, first, 30}, {0, first, 30}, {2, first / 2, 15}});
    }
    check(run(*parallel, mixed, 3)[0], "batch of", 3);
  }
}

// Sequence s has 20 + 5 s tokens, then 6 more, a token of each in a step.
TEST(a_step_in_two_parts_has_the_bits_of_each_sequence_alone) {
  constexpr int32_t kSequences = 40, kSteps = 6;
  const auto length = [](int32_t s) { return 20 + 5 * s; };
  for (const auto& [format, cache] :
       {std::pair{WeightFormat::kS8, KvFormat::kBf16}, {WeightFormat::kF32, KvFormat::kInt8}}) {
    std::vector<std::vector<Part>> steps;
    for (int32_t s = 0; s < kSequences; ++s) steps.push_back({{s, 0, length(s)}});
    for (int32_t i = 0; i < kSteps; ++i) {
      steps.emplace_back();
      for (int32_t s = 0; s < kSequences; ++s) steps.back().push_back({s, length(s) + i, 1});
    }
    for (int threads : {1, 2, 3}) {
      const auto plan = build({threads, 16, format, cache, kSequences * 304});
      const std::vector<std::vector<float>> together = run(*plan, steps, kSequences);
      CHECK(plan->num_parts() == 2, "%d parts", plan->num_parts());
      for (int32_t s = 0; s < kSequences; s += 3) {
        const std::vector<float> alone = run(*plan, {{{s, 0, length(s) + kSteps}}}, kSequences)[s];
        CHECK(plan->num_parts() == 1, "%d parts", plan->num_parts());
        CHECK(together[s].size() == alone.size() &&
                  same_bits(together[s].data(), alone.data(), alone.size()),
              "sequence %d, %d threads, cache %d", s, threads, static_cast<int>(cache));
      }
    }
  }
}

TEST(greedy_without_logits_is_the_argmax_of_the_logits) {
  const auto plan = build({2, 16, WeightFormat::kS8, KvFormat::kBf16});
  const std::vector<float> logits = run(*plan, chunks_of(0, 300), 1)[0];
  std::vector<int32_t> table(19);
  std::iota(table.begin(), table.end(), 0);
  const std::vector<int32_t> ids = tokens_of(0);
  const SequenceStep sequence{0, 300, 0, 0};
  std::vector<RowRequest> rows;
  std::vector<Draw> draws(100);
  for (int32_t i = 0; i < 100; ++i) {
    rows.push_back({3 * i, i, 1, -1, 0, 0});
    draws[i] = Draw{};
    draws[i].num_logprobs = i % 5 == 0 ? 2 : -1;  // some rows keep their logits, most do not
    draws[i].first_top = 2 * (i / 5);
    draws[i].repetition_penalty = 1.0f;
    draws[i].top_p = 1.0f;
    draws[i].allowed = {0, -1};
    draws[i].mask = i % 4 - 1;  // none, all ids, even ids, no id
  }
  const int64_t words = mask_words(kVocab);
  std::vector<uint32_t> masks(3 * words, ~uint32_t{0});
  std::fill(masks.begin() + words, masks.begin() + 2 * words, 0x55555555u);
  std::fill(masks.begin() + 2 * words, masks.end(), 0u);
  StepInput input;
  input.token_ids = ids.data();
  input.num_tokens = 300;
  input.sequences = &sequence;
  input.num_sequences = 1;
  input.block_tables = table.data();
  input.rows = rows.data();
  input.num_rows = 100;
  input.draws = draws.data();
  input.num_draws = 100;
  input.masks = masks.data();
  std::vector<int32_t> tokens(100, -1), errors(100, -1), ranks(200), top_ids(40);
  std::vector<float> logprobs(200), top(40);
  StepOutput output{tokens.data(), errors.data(),  logprobs.data(),
                    ranks.data(),  top_ids.data(), top.data()};
  plan->run(input, output);
  for (int32_t i = 0; i < 100; ++i) {
    const float* row = &logits[int64_t{3 * i} * kVocab];
    const int32_t largest = static_cast<int32_t>(std::max_element(row, row + kVocab) - row);
    if (draws[i].mask == 2) {
      CHECK(errors[i] == kNothingLeft, "row %d: error %d", i, errors[i]);
      continue;
    }
    int32_t best = largest;
    if (draws[i].mask == 1) {
      best = 0;
      for (int32_t id = 2; id < kVocab; id += 2) best = row[id] > row[best] ? id : best;
    }
    CHECK(tokens[i] == best && errors[i] == kNoError, "row %d: %d != %d", i, tokens[i], best);
    // Log-probabilities are the model's own, whatever a mask hides.
    if (i % 5 == 0) CHECK(top_ids[2 * (i / 5)] == largest, "row %d: %d", i, top_ids[2 * (i / 5)]);
    if (i % 5 == 0 && best == largest) CHECK(ranks[i] == 1, "rank %d", ranks[i]);
  }
}

namespace {

enum class Way { kCopies, kPages };

// Blocks go elsewhere within a step, or through another tier of memory between two.
void check_moved_blocks(KvFormat cache, Way way) {
  const auto plan = build({2, 16, WeightFormat::kS8, cache});
  const std::vector<float> whole = run(*plan, chunks_of(0, 300), 1)[0];
  // Blocks 0.. hold 290 tokens; all go to others, and it goes on from there.
  std::vector<int32_t> originals(19), copies(19);
  std::iota(originals.begin(), originals.end(), 0);
  std::iota(copies.begin(), copies.end(), 40);
  std::vector<int32_t> pairs;
  for (int i = 0; i < 19; ++i) pairs.insert(pairs.end(), {originals[i], copies[i]});
  const std::vector<int32_t> ids = tokens_of(0);
  auto step = [&](int32_t first, int32_t count, const std::vector<int32_t>& table, bool copy) {
    const SequenceStep sequence{0, count, first, 0};
    std::vector<RowRequest> rows;
    for (int32_t i = 0; i < count; ++i) rows.push_back({i, 0, 0, -1, 0, 0});
    std::vector<float> logits(int64_t{count} * kVocab);
    StepInput input;
    input.token_ids = ids.data() + first;
    input.num_tokens = count;
    input.sequences = &sequence;
    input.num_sequences = 1;
    input.block_tables = table.data();
    input.copies = pairs.data();
    input.num_copies = copy && way == Way::kCopies ? 19 : 0;
    input.rows = rows.data();
    input.num_rows = count;
    input.logits = logits.data();
    StepOutput output;
    plan->run(input, output);
    return logits;
  };
  step(0, 290, originals, false);
  if (way == Way::kPages) {
    std::vector<uint8_t> pages(19 * plan->page_bytes());  // to the last byte: sanitizers see more
    for (int i = 0; i < 19; ++i) {
      plan->read_page(originals[i], pages.data() + i * plan->page_bytes());
    }
    for (int i = 0; i < 19; ++i) {
      plan->write_page(copies[i], pages.data() + i * plan->page_bytes());
    }
  }
  const std::vector<float> rest = step(290, 10, copies, true);
  CHECK(same_bits(rest.data(), &whole[int64_t{290} * kVocab], 10 * kVocab),
        "after the move, cache %d, way %d", static_cast<int>(cache), static_cast<int>(way));
}

}  // namespace

TEST(moved_blocks_serve_as_the_originals) {
  for (KvFormat cache : {KvFormat::kF32, KvFormat::kBf16, KvFormat::kInt8, KvFormat::kFp8}) {
    check_moved_blocks(cache, Way::kCopies);
    check_moved_blocks(cache, Way::kPages);
  }
}

TEST(hidden_states_are_what_the_head_multiplies) {
  const Settings settings{2, 16, WeightFormat::kF32, KvFormat::kF32};
  const auto plan = build(settings);
  const std::vector<float> logits = run(*plan, chunks_of(0, 300), 1)[0];
  std::vector<int32_t> table(19), all(300), some = {299, 0, 17};
  std::iota(table.begin(), table.end(), 0);
  std::iota(all.begin(), all.end(), 0);
  auto hidden_of = [&](const std::vector<int32_t>& rows) {
    const std::vector<int32_t> ids = tokens_of(0);
    const SequenceStep sequence{0, 300, 0, 0};
    std::vector<float> hidden(rows.size() * kHidden);
    StepInput input;
    input.token_ids = ids.data();
    input.num_tokens = 300;
    input.sequences = &sequence;
    input.num_sequences = 1;
    input.block_tables = table.data();
    input.hidden_rows = rows.data();
    input.num_hidden_rows = static_cast<int32_t>(rows.size());
    StepOutput output;
    output.hidden = hidden.data();
    plan->run(input, output);
    return hidden;
  };
  const std::vector<float> hidden = hidden_of(all), few = hidden_of(some);
  for (size_t i = 0; i < some.size(); ++i) {
    CHECK(same_bits(&few[i * kHidden], &hidden[int64_t{some[i]} * kHidden], kHidden), "row %d",
          some[i]);
  }
  Random random(kSeed);
  const std::vector<uint8_t> bytes = random_q8_0(kVocab, kHidden, random);
  std::vector<float> head(kVocab * kHidden);
  dequantize_row(QuantType::kQ8_0, bytes.data(), kVocab * kHidden, head.data());
  for (int64_t row = 0; row < 300; ++row) {
    for (int64_t id = 0; id < kVocab; ++id) {
      double sum = 0.0, magnitude = 0.0;
      for (int64_t i = 0; i < kHidden; ++i) {
        const double product = static_cast<double>(hidden[row * kHidden + i]) *
                               static_cast<double>(head[id * kHidden + i]);
        sum += product;
        magnitude += std::fabs(product);
      }
      CHECK(std::fabs(logits[row * kVocab + id] - sum) <= gamma_n(kHidden + 1) * magnitude,
            "row %ld, token %ld: %.9g != %.9g", row, id,
            static_cast<double>(logits[row * kVocab + id]), sum);
    }
  }
}

}  // namespace octavo::test
