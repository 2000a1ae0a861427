// One layer's keys and values of one sequence in a pool of shuffled blocks, with poison in every
// unused slot.
#ifndef OCTAVO_TESTS_PAGED_SEQUENCE_H_
#define OCTAVO_TESTS_PAGED_SEQUENCE_H_

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/fp8.h"
#include "kernels/kernel_table.h"
#include "plan/quant_blocks.h"
#include "tests/check.h"

namespace octavo::test {

struct PagedSequence {
  // Keys and values are random in -1 .. 1.
  PagedSequence(int64_t length, int32_t heads, int32_t dim, int32_t block, KvFormat format,
                uint32_t seed)
      : random(seed),
        length(length),
        heads(heads),
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
                 Random(seed + block));          // not the generator of the numbers
    table.resize((length + block - 1) / block);  // no entry more: reading one is an error
    for (float& k : keys) k = uniform(random, -1.0f, 1.0f);
    for (float& v : values) v = uniform(random, -1.0f, 1.0f);
    for (int64_t t = 0; t < length; ++t) write(t);
  }

  // Unused slots hold large finite numbers: a masked key must weigh exactly nothing.
  void poison() {
    for (int64_t i = 0; i < memory.size(); i += 4) {
      const float big = 1e30f;
      if (kv.format == KvFormat::kBf16) {
        const uint16_t h = float_to_bf16(big);
        std::memcpy(&memory[i], &h, 2);
        std::memcpy(&memory[i + 2], &h, 2);
      } else {
        std::memcpy(&memory[i], &big, 4);
      }
    }
  }

  float* key(int64_t t, int32_t head) { return &keys[(t * heads + head) * kv.head_dim]; }
  float* value(int64_t t, int32_t head) { return &values[(t * heads + head) * kv.head_dim]; }

  // Puts the present keys and values of a token into the cache.
  void write(int64_t t) {
    for (int32_t h = 0; h < heads; ++h) {
      kernels()->write_kv(kv, table[t / kv.block_size], static_cast<int32_t>(t % kv.block_size), h,
                          key(t, h), value(t, h));
    }
  }

  // What the cache holds for number i of a token's key or value, and the size of a step of int8
  // (else 0).
  struct Cached {
    double value, step;
  };
  Cached cached(bool is_value, int64_t t, int32_t head, int32_t i) const {
    const int64_t d = kv.head_dim, b = kv.block_size, slot = t % b;
    const uint8_t* base = kv.base + table[t / b] * kv.block_stride + head * kv.head_stride;
    switch (kv.format) {
      case KvFormat::kF32: {  // keys [D][B], values [B][D]
        float x;
        std::memcpy(&x, base + 4 * (is_value ? d * b + slot * d + i : i * b + slot), 4);
        return {x, 0.0};
      }
      case KvFormat::kBf16: {  // keys [D/2][B][2], values [B/2][D][2]
        uint16_t x;
        const int64_t at =
            is_value ? d * b + (slot / 2 * d + i) * 2 + slot % 2 : (i / 2 * b + slot) * 2 + i % 2;
        std::memcpy(&x, base + 2 * at, 2);
        return {bf16_value(x), 0.0};
      }
      case KvFormat::kFp8: {  // keys [D/4][B][4], values [B/4][D][4]; of four the order is 0, 2, 1,
                              // 3
        auto byte = [](int64_t j) { return j % 2 * 2 + j / 2; };
        const int64_t at = is_value ? d * b + (slot / 4 * d + i) * 4 + byte(slot % 4)
                                    : (i / 4 * b + slot) * 4 + byte(i % 4);
        return {bf16_value(e4m3_to_bf16(base[at])), 0.0};
      }
      case KvFormat::kInt8: {  // keys [D/4][B][4] + 128, values [B/4][D][4], a float for each key
                               // and value
        float step;
        std::memcpy(&step, base + 2 * d * b + 4 * (slot + (is_value ? b : 0)), 4);
        const int q = is_value
                          ? static_cast<int8_t>(base[d * b + (slot / 4 * d + i) * 4 + slot % 4])
                          : base[(i / 4 * b + slot) * 4 + i % 4] - 128;
        return {static_cast<double>(q) * step, step};
      }
    }
    return {};
  }

  // Outputs of `tokens` tokens from `first` on, [tokens][group][D].
  std::vector<float> attend(const std::vector<float>& q, int32_t first, int32_t tokens,
                            int32_t group, int32_t head, int32_t window) const {
    const int64_t rows = int64_t{tokens} * group;
    Aligned<uint8_t> scratch(attention_scratch_bytes(rows, kv.head_dim));
    std::memset(scratch.get(), 0xff, scratch.size());  // left by another item: not numbers
    std::vector<float> out(rows * kv.head_dim, NAN);
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
  int64_t length;
  int32_t heads, num_blocks;
  Aligned<uint8_t> memory;
  std::vector<float> keys, values;  // [length][heads][dim]
  std::vector<int32_t> table;
  KvLayer kv;
};

}  // namespace octavo::test

#endif  // OCTAVO_TESTS_PAGED_SEQUENCE_H_
