// Paged attention against a softmax in double over scattered blocks, with poison in every unused
// slot.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/fp8.h"
#include "kernels/kernel_table.h"
#include "tests/check.h"

namespace octavo::test {
namespace {

constexpr KvFormat kFormats[] = {KvFormat::kF32, KvFormat::kBf16, KvFormat::kInt8, KvFormat::kFp8};

float rounded_to_fp8(float x) {
  const uint32_t bits = static_cast<uint32_t>(e4m3_to_bf16(float_to_e4m3(x))) << 16;
  std::memcpy(&x, &bits, 4);
  return x;
}

// One layer's keys and values of one sequence in a pool of shuffled blocks.
struct PagedSequence {
  PagedSequence(int64_t length, int32_t heads, int32_t dim, int32_t block, KvFormat format,
                uint32_t seed)
      : random(seed),
        num_blocks(static_cast<int32_t>((length + block - 1) / block + 3)),
        memory(num_blocks * heads * kv_head_bytes(format, dim, block)),
        keys(length * heads * dim),
        values(length * heads * dim),
        table(num_blocks) {
    kv.base = memory.get();
    kv.head_stride = kv_head_bytes(format, dim, block);
    kv.block_stride = heads * kv.head_stride;
    kv.block_size = block;
    kv.head_dim = dim;
    kv.format = format;
    poison();
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(),
                 Random(seed + block));  // not the generator of the numbers
    for (float& k : keys) k = uniform(random, -1.0f, 1.0f);
    for (float& v : values) v = uniform(random, -1.0f, 1.0f);
    if (format == KvFormat::kFp8) {  // what is in the cache is the question here, not its rounding
      for (float& k : keys) k = rounded_to_fp8(k);
      for (float& v : values) v = rounded_to_fp8(v);
    }
    for (int64_t t = 0; t < length; ++t) {
      for (int32_t h = 0; h < heads; ++h) {
        kernels()->write_kv(kv, table[t / block], static_cast<int32_t>(t % block), h,
                            &keys[(t * heads + h) * dim], &values[(t * heads + h) * dim]);
      }
    }
  }

  // Unused slots hold large finite numbers: a masked key must weigh exactly nothing.
  void poison() {
    for (int64_t i = 0; i < memory.size(); i += 4) {
      const float big = 1e30f;
      if (kv.format == KvFormat::kBf16) {
        uint32_t bits;
        std::memcpy(&bits, &big, 4);
        const uint16_t h = static_cast<uint16_t>(bits >> 16);
        std::memcpy(&memory[i], &h, 2);
        std::memcpy(&memory[i + 2], &h, 2);
      } else {
        std::memcpy(&memory[i], &big, 4);
      }
    }
  }

  std::vector<float> attend(const std::vector<float>& q, int32_t first, int32_t tokens,
                            int32_t group, int32_t head, int32_t window) const {
    const int64_t rows = int64_t{tokens} * group;
    Aligned<uint8_t> scratch(attention_scratch_bytes(rows, kv.head_dim));
    std::vector<float> out(rows * kv.head_dim);
    AttentionItem item;
    item.kv = kv;
    item.block_table = table.data();
    item.kv_head = head;
    item.first_position = first;
    item.num_tokens = tokens;
    item.group = group;
    item.window = window;
    item.query = q.data();
    item.query_stride = int64_t{group} * kv.head_dim;
    item.out = out.data();
    item.out_stride = int64_t{group} * kv.head_dim;
    item.scratch = scratch.get();
    kernels()->attention(item);
    return out;
  }

  Random random;
  int32_t num_blocks;
  Aligned<uint8_t> memory;
  std::vector<float> keys, values;  // [length][heads][dim]
  std::vector<int32_t> table;
  KvLayer kv;
};

// Softmax in double; scores are powers of two, as the kernel's queries are scaled.
std::vector<double> reference(const PagedSequence& s, const float* q, int32_t position,
                              int32_t heads, int32_t head, int32_t window) {
  const int32_t dim = s.kv.head_dim;
  const int32_t from = window > 0 ? std::max(0, position - window + 1) : 0;
  std::vector<double> scores, out(dim, 0.0);
  double largest = -INFINITY, total = 0.0;
  for (int32_t t = from; t <= position; ++t) {
    double dot = 0.0;
    for (int32_t i = 0; i < dim; ++i) {
      dot += static_cast<double>(q[i]) * s.keys[(int64_t{t} * heads + head) * dim + i];
    }
    scores.push_back(dot);
    largest = std::max(largest, dot);
  }
  for (size_t j = 0; j < scores.size(); ++j) {
    const double p = std::exp2(scores[j] - largest);
    total += p;
    for (int32_t i = 0; i < dim; ++i) {
      out[i] += p * s.values[((from + static_cast<int64_t>(j)) * heads + head) * dim + i];
    }
  }
  for (double& o : out) o /= total;
  return out;
}

void check_against_reference(KvFormat format, int32_t block, int32_t dim, int32_t group,
                             int32_t window) {
  const int32_t heads = 2;
  for (int32_t length : {1, 2, 15, 16, 17, 127, 128, 129, 511, 512, 513, 700}) {
    PagedSequence s(length, heads, dim, block, format, 17 + length);
    std::vector<float> q(group * dim);
    for (float& x : q) x = uniform(s.random, -1.0f, 1.0f);
    const std::vector<float> got = s.attend(q, length - 1, 1, group, 1, window);
    for (int32_t g = 0; g < group; ++g) {
      const std::vector<double> wanted = reference(s, &q[g * dim], length - 1, heads, 1, window);
      for (int32_t i = 0; i < dim; ++i) {
        // bfloat16 keeps 8 bits of q, k, v and of the weights. In float a score, a sum of D
        // products below 1, is wrong by at most D * D * 2^-25 or so, and so is the weight that it
        // is the exponent of.
        const double bound = format == KvFormat::kF32    ? 2e-7 * (10 + dim)
                             : format != KvFormat::kInt8 ? 2e-2
                                                         : 5e-2;
        CHECK(std::fabs(got[g * dim + i] - wanted[i]) < bound,
              "format %d block %d dim %d length %d window %d: %g != %g", static_cast<int>(format),
              block, dim, length, window, static_cast<double>(got[g * dim + i]), wanted[i]);
      }
    }
  }
}

}  // namespace

TEST(attention_equals_a_softmax_in_double) {
  for (KvFormat format : kFormats) {
    check_against_reference(format, 16, 64, 3, 0);
    check_against_reference(format, 32, 16, 1, 0);
    check_against_reference(format, 64, 48, 5, 0);
    check_against_reference(format, 128, 256, 4, 0);
    check_against_reference(format, 16, 32, 7, 24);
    check_against_reference(format, 16, 64, 2, 512);
  }
}

TEST(attention_bits_do_not_depend_on_company_or_blocks) {
  const int32_t group = 3, dim = 64, heads = 2;
  for (KvFormat format : kFormats) {
    for (int32_t window : {0, 24, 300}) {
      const int32_t length = 650;
      std::vector<std::vector<float>> alone(length);
      for (int32_t block : {16, 32, 64, 128}) {
        PagedSequence s(length, heads, dim, block, format,
                        5);  // the same numbers for every block size
        std::vector<float> q(int64_t{length} * group * dim);
        Random random(9);
        for (float& x : q) x = uniform(random, -1.0f, 1.0f);
        for (int32_t tokens : {1, 2, 7, 42}) {
          for (int32_t first = 0; first < length; first += 53) {
            const int32_t n = std::min(tokens, length - first);
            const std::vector<float> part(q.begin() + int64_t{first} * group * dim,
                                          q.begin() + int64_t{first + n} * group * dim);
            const std::vector<float> out = s.attend(part, first, n, group, 0, window);
            for (int32_t t = 0; t < n; ++t) {
              const std::vector<float> row(out.begin() + t * group * dim,
                                           out.begin() + (t + 1) * group * dim);
              if (alone[first + t].empty()) alone[first + t] = row;
              CHECK(same_bits(row.data(), alone[first + t].data(), group * dim),
                    "format %d window %d block %d tokens %d position %d", static_cast<int>(format),
                    window, block, tokens, first + t);
            }
          }
        }
      }
    }
  }
}

TEST(attention_takes_a_late_maximum) {
  // The largest score comes last, far above the rest: all that was summed before shrinks to
  // nothing.
  PagedSequence s(600, 1, 16, 16, KvFormat::kF32, 3);
  std::vector<float> q(16, 0.0f);
  q[0] = 100.0f;
  for (int64_t t = 0; t < 600; ++t) s.keys[t * 16] = t == 599 ? 1.0f : -1.0f;
  for (int64_t t = 0; t < 600; ++t) {
    kernels()->write_kv(s.kv, s.table[t / 16], static_cast<int32_t>(t % 16), 0, &s.keys[t * 16],
                        &s.values[t * 16]);
  }
  const std::vector<float> out = s.attend(q, 599, 1, 1, 0, 0);
  CHECK(same_bits(out.data(), &s.values[599 * 16], 16), "%g", static_cast<double>(out[0]));
}

}  // namespace octavo::test
