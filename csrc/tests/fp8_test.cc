// FP8 E4M3 against its definition: every code, every number halfway between two, and its
// neighbours.
#include "kernels/fp8.h"

#include <cmath>

#include "kernels/kernel_table.h"
#include "tests/check.h"

namespace octavo::test {
namespace {

// The value of a code, as the specification writes it.
double e4m3(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa / 8.0, -6)
                                         : std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
  return code & 0x80 ? -magnitude : magnitude;
}

bool is_nan(int code) { return (code & 0x7f) == 0x7f; }

float from_bf16(uint16_t h) {
  const uint32_t bits = static_cast<uint32_t>(h) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

}  // namespace

TEST(fp8_codes_are_what_the_specification_says) {
  for (int code = 0; code < 256; ++code) {
    const float f = from_bf16(e4m3_to_bf16(static_cast<uint8_t>(code)));
    if (is_nan(code)) {
      CHECK(std::isnan(f), "code %d: %g", code, static_cast<double>(f));
      CHECK((float_to_e4m3(std::copysign(NAN, code & 0x80 ? -1.0f : 1.0f)) & 0x7f) == 0x7f, "NaN");
      continue;
    }
    CHECK(static_cast<double>(f) == e4m3(code), "code %d: %g", code, static_cast<double>(f));
    CHECK(float_to_e4m3(f) == code, "code %d comes back as %d", code, float_to_e4m3(f));
  }
}

TEST(fp8_rounds_to_nearest_even_and_saturates) {
  // Rounding is a rising function: it is right everywhere if it is right at each step.
  for (int code = 0; code < 0x7e; ++code) {
    for (int sign : {0, 0x80}) {
      const float low = static_cast<float>(e4m3(code | sign));
      const float high = static_cast<float>(e4m3((code + 1) | sign));
      const float half = (low + high) / 2;  // exact
      const int even = (code % 2 == 0 ? code : code + 1) | sign;
      CHECK(float_to_e4m3(half) == even, "between %d and %d", code, code + 1);
      CHECK(float_to_e4m3(std::nextafter(half, low)) == (code | sign), "below, code %d", code);
      CHECK(float_to_e4m3(std::nextafter(half, high)) == ((code + 1) | sign), "above, code %d",
            code);
    }
  }
  const float large[] = {448.0f, 464.0f, 480.0f, 1e30f, INFINITY};
  for (float x : large) {
    CHECK(float_to_e4m3(x) == 0x7e && float_to_e4m3(-x) == 0xfe, "%g", static_cast<double>(x));
  }
  uint8_t before = 0;  // rising over all floats of bfloat16's precision
  for (uint32_t h = 0; h <= 0x7f80; ++h) {
    const uint8_t code = float_to_e4m3(from_bf16(static_cast<uint16_t>(h)));
    CHECK(code >= before, "falls at %x", h);
    before = code;
  }
}

TEST(attention_reads_every_fp8_code) {
  // One key: its value comes out as it is. 16 channels at a time, in each of the 16 slots.
  constexpr int32_t kDim = 16, kBlock = 16;
  Aligned<uint8_t> memory(kv_head_bytes(KvFormat::kFp8, kDim, kBlock));
  Aligned<uint8_t> scratch(attention_scratch_bytes(1, kDim));
  KvLayer kv;
  kv.base = memory.get();
  kv.block_stride = kv.head_stride = memory.size();
  kv.block_size = kBlock;
  kv.head_dim = kDim;
  kv.format = KvFormat::kFp8;
  const int32_t table[] = {0};
  for (int first = 0; first < 256; first += kDim) {
    float key[kDim] = {}, value[kDim], query[kDim] = {}, out[kDim];
    for (int i = 0; i < kDim; ++i) {
      value[i] = is_nan(first + i) ? NAN : static_cast<float>(e4m3(first + i));
    }
    const int32_t slot = first / kDim;
    kernels()->write_kv(kv, 0, slot, 0, key, value);
    AttentionItem item;
    item.kv = kv;
    item.block_table = table;
    item.kv_head = 0;
    item.first_position = slot;
    item.num_tokens = 1;
    item.group = 1;
    item.window = 1;
    item.query = query;
    item.query_stride = kDim;
    item.out = out;
    item.out_stride = kDim;
    item.scratch = scratch.get();
    kernels()->attention(item);
    for (int i = 0; i < kDim; ++i) {
      if (is_nan(first + i)) {
        CHECK(std::isnan(out[i]), "code %d", first + i);
      } else {
        CHECK(out[i] == value[i], "code %d: %g", first + i, static_cast<double>(out[i]));
      }
    }
    kernels()->write_kv(kv, 0, slot, 0, key, key);  // NaN times a weight of 0 would be NaN
  }
}

}  // namespace octavo::test
