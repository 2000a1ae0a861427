// From a row of logits to a token.
//
// Order: allowed, masked, banned and biased ids; repetition, frequency and presence penalties;
// temperature; min_p; top_k; top_p; one draw. Ties go to the lower id. The random number depends on
// the seed and the number of tokens before only: Philox4x32-10 (Salmon et al., SC 2011).
#ifndef OCTAVO_PLAN_SAMPLER_H_
#define OCTAVO_PLAN_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernel_table.h"
#include "plan/step.h"

namespace octavo {

// Uniform in [0, 1) with 53 bits.
double uniform_random(uint64_t seed, uint32_t output_index);

// One thread's sampler; holds scratch for a vocabulary.
class Sampler {
 public:
  Sampler(const KernelTable& kernels, int64_t vocab_size);

  // Memory that it keeps.
  size_t num_bytes() const { return (z_.size() + p_.size() + counts_.size()) * sizeof(float); }

  // Draws from logits [V]. Returns a DrawError; on kNoError *token is set.
  DrawError draw(const float* logits, const Draw& draw, const StepInput& input, int32_t* token);

  // Log-probability and rank of a token among logits [V], and the `num_top` most likely.
  void logprobs(const float* logits, int32_t token, int32_t num_top, float* logprob, int32_t* rank,
                int32_t* top_ids, float* top_logprobs);

 private:
  void apply_masks(const Draw& draw, const StepInput& input);
  void apply_mask(const uint32_t* mask);
  void apply_penalties(const Draw& draw, const StepInput& input);
  void keep_top_k(int32_t top_k);
  void keep_top_p(double top_p);
  // ids of the k largest of values[V], in no order; ties by lower id.
  void largest(const float* values, int64_t k, std::vector<int32_t>* ids);

  const KernelTable& kernels_;
  const int64_t vocab_size_;
  std::vector<float> z_;       // logits after masks and penalties, padded with -inf
  std::vector<float> p_;       // weights relative to the most likely token
  std::vector<int32_t> kept_;  // ids still in play, ascending before the draw
  std::vector<int32_t> counts_;
  std::vector<float> block_max_;
};

}  // namespace octavo

#endif  // OCTAVO_PLAN_SAMPLER_H_
