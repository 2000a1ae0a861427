// The sampler against plain definitions, and its random numbers against published ones.
#include "plan/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "tests/check.h"

namespace octavo::test {
namespace {

Draw plain(float temperature) {
  Draw d{};
  d.num_logprobs = -1;
  d.temperature = temperature;
  d.top_p = 1.0f;
  d.repetition_penalty = 1.0f;
  d.allowed = {0, -1};
  d.mask = -1;
  return d;
}

std::set<int32_t> support(Sampler& sampler, const std::vector<float>& logits, Draw d, int draws) {
  std::set<int32_t> seen;
  for (int i = 0; i < draws; ++i) {
    int32_t token = -1;
    d.seed = 1234 + i;
    CHECK(sampler.draw(logits.data(), d, {}, &token) == kNoError, "draw");
    seen.insert(token);
  }
  return seen;
}

}  // namespace

TEST(random_numbers_are_philox) {
  // Random123's known answer for philox4x32-10 with counter and key 0: 6627e8d5 e169c58d bc57ac4c
  // 9b00dbd8.
  const double wanted = (static_cast<double>(0x6627e8d5u >> 5) * 67108864.0 + (0xe169c58du >> 6)) /
                        9007199254740992.0;
  CHECK(uniform_random(0, 0) == wanted, "%.17g", uniform_random(0, 0));
  CHECK(uniform_random(0, 1) != uniform_random(1, 0), "seed and counter differ");
  CHECK(uniform_random(uint64_t{1} << 32, 0) != uniform_random(0, 0),
        "high half of the seed counts");
}

TEST(greedy_takes_the_lowest_of_equals) {
  Sampler sampler(*kernels(), 100);
  std::vector<float> logits(100, 0.5f);
  logits[37] = logits[81] = 2.0f;
  int32_t token;
  CHECK(sampler.draw(logits.data(), plain(0.0f), {}, &token) == kNoError && token == 37, "%d",
        token);
}

TEST(bad_rows_are_reported) {
  Sampler sampler(*kernels(), 50);
  int32_t token;
  for (float bad : {NAN, -NAN, INFINITY}) {
    std::vector<float> logits(50, 1.0f);
    logits[49] = bad;
    CHECK(sampler.draw(logits.data(), plain(1.0f), {}, &token) == kNotFinite, "%g",
          static_cast<double>(bad));
  }
  const std::vector<float> logits(50, 1.0f);
  const int32_t ids[] = {3, 3};
  Draw extreme = plain(1.0f);
  extreme.output = {0, 1};
  extreme.repetition_penalty = 1e-45f;
  StepInput history;
  history.ids = ids;
  CHECK(sampler.draw(logits.data(), extreme, history, &token) == kNotFinite, "infinite penalty");
  StepInput input;
  input.ids = ids;
  Draw d = plain(1.0f);
  d.allowed = {0, 1};
  d.banned = {1, 1};
  CHECK(sampler.draw(logits.data(), d, input, &token) == kNothingLeft, "all excluded");
}

TEST(a_mask_hides_ids_before_all_else) {
  const int64_t vocab = 75;  // the last word of a mask reaches beyond it
  Sampler sampler(*kernels(), vocab);
  std::vector<float> logits(vocab, 1.0f);
  logits[40] = 5.0f;
  std::vector<uint32_t> masks(2 * mask_words(vocab), 0u);
  masks[0] = 1u << 3;                             // 3
  masks[2] = 1u << 10 | 1u << 31;                 // 74; the other is no id
  masks[3] = masks[4] = masks[5] = ~uint32_t{0};  // all
  StepInput input;
  input.masks = masks.data();
  Draw d = plain(1.0f);
  std::set<int32_t> seen;
  for (int i = 0; i < 200; ++i) {
    int32_t token = -1;
    d.mask = 0;
    d.seed = 99 + i;
    CHECK(sampler.draw(logits.data(), d, input, &token) == kNoError, "draw");
    seen.insert(token);
  }
  CHECK(seen == std::set<int32_t>({3, 74}), "%zu ids", seen.size());
  int32_t token = -1;
  d = plain(0.0f);
  d.mask = 1;
  CHECK(sampler.draw(logits.data(), d, input, &token) == kNoError && token == 40, "%d", token);
  const int32_t ids[] = {3, 74};
  input.ids = ids;
  d.mask = 0;
  d.banned = {0, 2};
  CHECK(sampler.draw(logits.data(), d, input, &token) == kNothingLeft, "all excluded");
}

TEST(filters_keep_exactly_the_right_ids) {
  const int64_t vocab = 5000;
  Sampler sampler(*kernels(), vocab);
  Random random(11);
  std::vector<float> logits(vocab);
  for (float& x : logits) x = uniform(random, -3.0f, 3.0f);
  std::vector<int32_t> order(vocab);
  for (int64_t i = 0; i < vocab; ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });

  Draw d = plain(1.0f);
  d.top_k = 5;
  CHECK(support(sampler, logits, d, 400) == std::set<int32_t>(order.begin(), order.begin() + 5),
        "top_k");

  d = plain(0.05f);
  d.top_p = 0.9f;
  double total = 0.0, sum = 0.0;
  for (int32_t i : order) total += std::exp((logits[i] - logits[order[0]]) / 0.05);
  size_t kept = 0;
  while (sum < 0.9 * total) sum += std::exp((logits[order[kept++]] - logits[order[0]]) / 0.05);
  const std::set<int32_t> seen = support(sampler, logits, d, 3000);
  const std::set<int32_t> allowed(order.begin(), order.begin() + kept);
  CHECK(std::includes(allowed.begin(), allowed.end(), seen.begin(), seen.end()),
        "top_p lets others in");
  CHECK(seen.count(order[0]) == 1 && seen.size() * 2 > allowed.size(), "%zu of %zu seen",
        seen.size(), allowed.size());

  d = plain(1.0f);
  d.min_p = 0.999f;
  const std::set<int32_t> near_top = support(sampler, logits, d, 200);
  for (int32_t id : near_top)
    CHECK(logits[id] >= logits[order[0]] + std::log(0.999f) - 1e-6f, "min_p");
}

TEST(frequencies_follow_the_softmax) {
  const int vocab = 40, draws = 40000;
  Sampler sampler(*kernels(), vocab);
  std::vector<float> logits(vocab);
  for (int i = 0; i < vocab; ++i) logits[i] = std::log(1.0f + static_cast<float>(i));
  std::vector<int> counts(vocab);
  Draw d = plain(1.0f);
  for (int i = 0; i < draws; ++i) {
    int32_t token = 0;
    d.seed = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u;
    sampler.draw(logits.data(), d, {}, &token);
    ++counts[token];
  }
  double chi = 0.0;
  for (int i = 0; i < vocab; ++i) {
    const double expected = draws * (1.0 + i) / 820.0;
    chi += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  CHECK(chi < 73.0, "chi-square %g with 39 degrees of freedom (0.1 %% above 72.1)", chi);
}

TEST(penalties_and_bias_follow_their_definition) {
  const int64_t vocab = 20;
  Sampler sampler(*kernels(), vocab);
  std::vector<float> logits(vocab, 0.0f);
  logits[1] = 4.0f, logits[2] = 3.9f, logits[3] = 3.0f;
  const int32_t ids[] = {1, 7, 2, 2, 3};  // prompt 1 7; output 2 2; bias on 3
  const float bias[] = {0.95f};
  StepInput input;
  input.ids = ids;
  input.bias_values = bias;
  Draw d = plain(0.0f);
  int32_t token;
  d.prompt = {0, 2}, d.output = {2, 2};
  d.repetition_penalty = 1.2f;  // 4 / 1.2 = 3.33, 3.9 / 1.2 = 3.25, 3
  CHECK(sampler.draw(logits.data(), d, input, &token) == kNoError && token == 1, "%d", token);
  d.biased = {4, 1};  // 3.95
  CHECK(sampler.draw(logits.data(), d, input, &token) == kNoError && token == 3, "%d", token);
  d = plain(0.0f);
  d.prompt = {0, 2}, d.output = {2, 2};
  d.frequency_penalty = -0.04f, d.presence_penalty = -0.03f;  // 3.9 + 0.08 + 0.03 = 4.01
  CHECK(sampler.draw(logits.data(), d, input, &token) == kNoError && token == 2, "%d", token);
}

TEST(logprobs_are_a_log_softmax) {
  const int64_t vocab = 3001;
  Sampler sampler(*kernels(), vocab);
  Random random(5);
  std::vector<float> logits(vocab);
  for (float& x : logits) x = uniform(random, -8.0f, 8.0f);
  logits[100] = logits[2000] = 9.0f;
  double total = 0.0;
  for (float x : logits) total += std::exp(static_cast<double>(x));
  float logprob, top[4];
  int32_t rank, ids[4];
  sampler.logprobs(logits.data(), 2000, 4, &logprob, &rank, ids, top);
  CHECK(std::fabs(logprob - (9.0 - std::log(total))) < 1e-5, "%g", static_cast<double>(logprob));
  CHECK(rank == 1 && ids[0] == 100 && ids[1] == 2000, "rank %d ids %d %d", rank, ids[0], ids[1]);
  CHECK(top[0] == logprob && top[2] < top[1] && top[3] <= top[2], "order");
}

}  // namespace octavo::test
