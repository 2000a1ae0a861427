#include "plan/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace octavo {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr int64_t kBlock = 32;  // numbers that share a maximum in `largest`

void multiply(uint32_t a, uint32_t b, uint32_t* high, uint32_t* low) {
  const uint64_t product = static_cast<uint64_t>(a) * b;
  *high = static_cast<uint32_t>(product >> 32);
  *low = static_cast<uint32_t>(product);
}

}  // namespace

double uniform_random(uint64_t seed, uint32_t output_index) {
  uint32_t x[4] = {output_index, 0, 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    uint32_t high0, low0, high1, low1;
    multiply(0xD2511F53u, x[0], &high0, &low0);
    multiply(0xCD9E8D57u, x[2], &high1, &low1);
    const uint32_t next[4] = {high1 ^ x[1] ^ key[0], low1, high0 ^ x[3] ^ key[1], low0};
    std::memcpy(x, next, sizeof(x));
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return (static_cast<double>(x[0] >> 5) * 67108864.0 + static_cast<double>(x[1] >> 6)) /
         9007199254740992.0;
}

Sampler::Sampler(const KernelTable& kernels, int64_t vocab_size)
    : kernels_(kernels),
      vocab_size_(vocab_size),
      z_((vocab_size + 15) / 16 * 16, kMinusInfinity),
      p_(z_.size()),
      counts_(vocab_size, 0) {}

DrawError Sampler::draw(const float* logits, const Draw& draw, const StepInput& input,
                        int32_t* token) {
  if (!kernels_.is_drawable(logits, vocab_size_)) return kNotFinite;
  std::copy(logits, logits + vocab_size_, z_.begin());
  apply_masks(draw, input);
  apply_penalties(draw, input);
  // Penalties may divide by next to nothing; what they make of a row counts as the model's own
  // logits do.
  if (!kernels_.is_drawable(z_.data(), vocab_size_)) return kNotFinite;
  const int64_t best = kernels_.argmax(z_.data(), vocab_size_);
  if (z_[best] == kMinusInfinity) return kNothingLeft;
  if (draw.temperature == 0.0f) {
    *token = static_cast<int32_t>(best);
    return kNoError;
  }
  kernels_.exp_scaled(z_.data(), z_[best], 1.0f / draw.temperature, static_cast<int64_t>(z_.size()),
                      p_.data());
  // The most likely token has weight 1, so min_p is a bound on the weights as they are.
  kept_.clear();
  for (int64_t i = 0; i < vocab_size_; ++i) {
    if (p_[i] > 0.0f && p_[i] >= draw.min_p) kept_.push_back(static_cast<int32_t>(i));
  }
  if (draw.top_k > 0) keep_top_k(draw.top_k);
  if (draw.top_p < 1.0f) keep_top_p(static_cast<double>(draw.top_p));
  double total = 0.0;
  for (int32_t id : kept_) total += static_cast<double>(p_[id]);
  const double bound = uniform_random(draw.seed, static_cast<uint32_t>(draw.output_index)) * total;
  double sum = 0.0;
  *token = kept_.back();  // if rounding leaves the last sum at the bound
  for (int32_t id : kept_) {
    sum += static_cast<double>(p_[id]);
    if (sum > bound) {
      *token = id;
      break;
    }
  }
  return kNoError;
}

void Sampler::apply_masks(const Draw& draw, const StepInput& input) {
  if (draw.allowed.count >= 0) {
    p_.assign(p_.size(), kMinusInfinity);
    for (int32_t i = 0; i < draw.allowed.count; ++i) {
      const int32_t id = input.ids[draw.allowed.begin + i];
      p_[id] = z_[id];
    }
    std::copy(p_.begin(), p_.begin() + vocab_size_, z_.begin());
  }
  if (draw.mask >= 0) apply_mask(input.masks + draw.mask * mask_words(vocab_size_));
  for (int32_t i = 0; i < draw.banned.count; ++i) {
    z_[input.ids[draw.banned.begin + i]] = kMinusInfinity;
  }
  for (int32_t i = 0; i < draw.biased.count; ++i) {
    z_[input.ids[draw.biased.begin + i]] += input.bias_values[draw.first_bias + i];
  }
}

void Sampler::apply_mask(const uint32_t* mask) {
  for (int64_t word = 0; word < mask_words(vocab_size_); ++word) {
    if (mask[word] == ~uint32_t{0}) continue;
    // z_ is padded to 16: the last word may reach beyond the vocabulary.
    const int64_t first = word * 32;
    kernels_.hide(z_.data() + first, std::min<int64_t>(32, vocab_size_ - first), mask[word]);
  }
}

void Sampler::apply_penalties(const Draw& draw, const StepInput& input) {
  const int32_t* prompt = input.ids + draw.prompt.begin;
  const int32_t* output = input.ids + draw.output.begin;
  // counts_: -1 seen in the prompt only, n > 0 times in the output; cleared again below.
  for (int32_t i = 0; i < draw.prompt.count; ++i) counts_[prompt[i]] = -1;
  for (int32_t i = 0; i < draw.output.count; ++i) {
    int32_t& count = counts_[output[i]];
    count = count < 0 ? 1 : count + 1;
  }
  auto apply = [&](int32_t id) {
    const int32_t count = counts_[id];
    if (count == 0) return;
    counts_[id] = 0;
    float& z = z_[id];
    z = z > 0.0f ? z / draw.repetition_penalty : z * draw.repetition_penalty;
    if (count > 0) {
      z -= draw.frequency_penalty * static_cast<float>(count);
      z -= draw.presence_penalty;
    }
  };
  for (int32_t i = 0; i < draw.prompt.count; ++i) apply(prompt[i]);
  for (int32_t i = 0; i < draw.output.count; ++i) apply(output[i]);
}

void Sampler::keep_top_k(int32_t top_k) {
  if (top_k >= static_cast<int64_t>(kept_.size())) return;
  if (static_cast<int64_t>(kept_.size()) == vocab_size_) {
    largest(z_.data(), top_k, &kept_);
  } else {
    std::nth_element(kept_.begin(), kept_.begin() + top_k, kept_.end(),
                     [&](int32_t a, int32_t b) { return z_[a] != z_[b] ? z_[a] > z_[b] : a < b; });
    kept_.resize(top_k);
  }
  std::sort(kept_.begin(), kept_.end());
}

// Weights fall into bins of 1/16 nat; only the bin in which the sum crosses top_p is sorted.
void Sampler::keep_top_p(double top_p) {
  constexpr int kBins = 16 * 104;  // weights below e^-104 are 0 in float
  auto bin_of = [&](int32_t id) {
    return std::min(kBins - 1, std::max(0, static_cast<int>(-16.0f * std::log(p_[id]))));
  };
  std::vector<double> mass(kBins, 0.0);
  double total = 0.0;
  for (int32_t id : kept_) {
    mass[bin_of(id)] += static_cast<double>(p_[id]);
    total += static_cast<double>(p_[id]);
  }
  const double wanted = top_p * total;
  double above = 0.0;
  int crossing = 0;
  while (crossing < kBins - 1 && above + mass[crossing] < wanted) above += mass[crossing++];
  std::vector<int32_t> kept, last;
  for (int32_t id : kept_) {
    const int bin = bin_of(id);
    if (bin < crossing) kept.push_back(id);
    if (bin == crossing) last.push_back(id);
  }
  std::sort(last.begin(), last.end(),
            [&](int32_t a, int32_t b) { return p_[a] != p_[b] ? p_[a] > p_[b] : a < b; });
  for (int32_t id : last) {
    if (above >= wanted && !kept.empty()) break;
    kept.push_back(id);
    above += static_cast<double>(p_[id]);
  }
  std::sort(kept.begin(), kept.end());
  kept_.swap(kept);
}

void Sampler::largest(const float* values, int64_t k, std::vector<int32_t>* ids) {
  ids->clear();
  float bound = kMinusInfinity;
  const int64_t num_blocks = vocab_size_ / kBlock;
  if (k < num_blocks) {
    // The k-th largest block maximum is a lower bound for the k-th largest value.
    block_max_.resize(num_blocks);
    for (int64_t b = 0; b < num_blocks; ++b) {
      block_max_[b] = *std::max_element(values + b * kBlock, values + (b + 1) * kBlock);
    }
    std::nth_element(block_max_.begin(), block_max_.begin() + (k - 1), block_max_.end(),
                     std::greater<float>());
    bound = block_max_[k - 1];
  }
  for (int64_t i = 0; i < vocab_size_; ++i) {
    if (values[i] >= bound) ids->push_back(static_cast<int32_t>(i));
  }
  if (k < static_cast<int64_t>(ids->size())) {
    std::nth_element(ids->begin(), ids->begin() + k, ids->end(), [&](int32_t a, int32_t b) {
      return values[a] != values[b] ? values[a] > values[b] : a < b;
    });
    ids->resize(k);
  }
}

void Sampler::logprobs(const float* logits, int32_t token, int32_t num_top, float* logprob,
                       int32_t* rank, int32_t* top_ids, float* top_logprobs) {
  const float max = logits[kernels_.argmax(logits, vocab_size_)];
  const double total = kernels_.log_sum_exp(logits, vocab_size_, max);
  *logprob = static_cast<float>(static_cast<double>(logits[token]) - total);
  int32_t larger = 0;
  for (int64_t i = 0; i < vocab_size_; ++i) larger += logits[i] > logits[token];
  *rank = larger + 1;
  if (num_top <= 0) return;
  std::vector<int32_t> ids;
  largest(logits, num_top, &ids);
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  for (int32_t i = 0; i < num_top; ++i) {
    top_ids[i] = ids[i];
    top_logprobs[i] = static_cast<float>(static_cast<double>(logits[ids[i]]) - total);
  }
}

}  // namespace octavo
