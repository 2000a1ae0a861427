// Paged attention against a softmax in double of what the cache holds, within the roundings that
// the kernel makes.
#include <algorithm>
#include <cmath>

#include "tests/paged_sequence.h"

namespace octavo::test {
namespace {

constexpr KvFormat kFormats[] = {KvFormat::kF32, KvFormat::kBf16, KvFormat::kInt8, KvFormat::kFp8};

bool in_bf16(KvFormat format) { return format == KvFormat::kBf16 || format == KvFormat::kFp8; }
constexpr int32_t kHeads = 2, kHead = 1;
constexpr double kLn2 = 0.6931471805599453;

// A query as the kernel multiplies it: in the form of the cache.
std::vector<double> query_in_cache_form(const float* q, int32_t dim, KvFormat format) {
  std::vector<double> out(q, q + dim);
  if (in_bf16(format)) {
    for (int32_t i = 0; i < dim; ++i) out[i] = bf16_value(float_to_bf16(q[i]));
  } else if (format == KvFormat::kInt8) {
    float top = 0.0f;
    for (int32_t i = 0; i < dim; ++i) top = std::max(top, std::fabs(q[i]));
    const float inverse = top > 0.0f ? 127.0f / top : 0.0f, scale = top / 127.0f;
    for (int32_t i = 0; i < dim; ++i)
      out[i] = static_cast<double>(std::nearbyint(q[i] * inverse)) * scale;
  }
  return out;
}

struct Expected {
  std::vector<double> out, bound;
};

// Softmax in double; scores are powers of two, as the kernel's queries are scaled. To first order,
// an output moves by sum w |e| |v - out| if the weights w are wrong by shares e. Of a weight 2^(s -
// max):
//  - s rounds D + 1 times (once for each of its terms, which are D products; as an integer it is
//  exact and takes 3
//    roundings for its scales), the difference once, and 2^x itself is good to 2^-22;
//  - each tile that follows multiplies by 2^(old - new maximum), and each split, which adds twice
//  as much: the
//    differences add up to the range of the scores at the most;
//  - bfloat16 weights round to 8 bits. Those that are summed for the quotient are the same rounded
//  ones.
// int8 weights, times their values' scales, are in units of the tile's largest / 65535: half a unit
// each, and 65535 * 3 u more for finding it. Then every output is a sum over keys, tiles and
// splits, and the quotient rounds.
Expected expected(const PagedSequence& s, const float* query, int32_t position, int32_t window) {
  const int32_t dim = s.kv.head_dim;
  const KvFormat format = s.kv.format;
  const int32_t from = window > 0 ? std::max(0, position - window + 1) : 0, n = position + 1 - from;
  const std::vector<double> q = query_in_cache_form(query, dim, format);
  std::vector<double> score(n), error(n), weight(n);
  double largest = -INFINITY, lowest = INFINITY, total = 0.0;
  for (int32_t t = 0; t < n; ++t) {
    double magnitude = 0.0;
    for (int32_t i = 0; i < dim; ++i) {
      const double product = q[i] * s.cached(false, from + t, kHead, i).value;
      score[t] += product;
      magnitude += std::fabs(product);
    }
    error[t] =
        format == KvFormat::kInt8 ? gamma_n(3) * std::fabs(score[t]) : gamma_n(dim + 1) * magnitude;
    largest = std::max(largest, score[t]);
    lowest = std::min(lowest, score[t]);
  }
  const double steps = position / kKeysPerTile + 2 * (position / kKeysPerSplit) + 3;
  for (int32_t t = 0; t < n; ++t) {
    const double range = (largest - score[t]) + (largest - lowest) * (steps > 3 ? 2 : 0);
    error[t] =
        kLn2 * (error[t] + kUnit * range) + steps * 0x1p-22 + (in_bf16(format) ? 0x1p-8 : 0.0);
    weight[t] = std::exp2(score[t] - largest);
    total += weight[t];
  }
  Expected e{std::vector<double>(dim), std::vector<double>(dim)};
  for (int32_t i = 0; i < dim; ++i) {
    double magnitude = 0.0, moved = 0.0;
    for (int32_t t = 0; t < n; ++t)
      e.out[i] += weight[t] / total * s.cached(true, from + t, kHead, i).value;
    for (int32_t tile = from / kKeysPerTile * kKeysPerTile; tile <= position;
         tile += kKeysPerTile) {
      double top = 0.0, count = 0.0;
      for (int32_t t = std::max(0, tile - from); t < std::min(n, tile + kKeysPerTile - from); ++t) {
        const PagedSequence::Cached v = s.cached(true, from + t, kHead, i);
        const double share = weight[t] / total;
        magnitude += share * std::fabs(v.value);
        moved += share * error[t] * std::fabs(v.value - e.out[i]);
        top = std::max(top, share * v.step);
        count += v.step > 0.0 ? std::fabs(v.value / v.step) : 0.0;
      }
      moved += (0.5 + 65535 * gamma_n(3)) / 65535 * top * count;
    }
    // Weights below 2^-126 are 0: n of them at the most are missing, of values up to 1.
    e.bound[i] = (moved + gamma_n(n + 4 * steps + 4) * magnitude +
                  gamma_n(n / 16.0 + 3 * steps + 8) * std::fabs(e.out[i])) *
                     (1 + 1e-2) +
                 n * 0x1p-125;
  }
  return e;
}

void check_row(const PagedSequence& s, const float* q, int32_t position, int32_t window,
               const float* got, const char* what) {
  const Expected e = expected(s, q, position, window);
  for (int32_t i = 0; i < s.kv.head_dim; ++i) {
    CHECK(std::fabs(got[i] - e.out[i]) <= e.bound[i],
          "%s, format %d block %d dim %d position %d window %d: %.9g != %.9g within %g", what,
          static_cast<int>(s.kv.format), s.kv.block_size, s.kv.head_dim, position, window,
          static_cast<double>(got[i]), e.out[i], e.bound[i]);
  }
}

void check_lengths(KvFormat format, int32_t block, int32_t dim, int32_t group, int32_t window) {
  for (int32_t length : {1, 2, 15, 16, 17, 127, 128, 129, 511, 512, 513, 700}) {
    PagedSequence s(length, kHeads, dim, block, format, 17 + length);
    std::vector<float> q(group * dim);
    for (float& x : q) x = uniform(s.random, -1.0f, 1.0f);
    const std::vector<float> got = s.attend(q, length - 1, 1, group, kHead, window);
    for (int32_t g = 0; g < group; ++g) {
      check_row(s, &q[g * dim], length - 1, window, &got[g * dim], "random");
    }
  }
}

// One row of a sequence of 600 keys that `change` has made of a random one.
template <class Change>
void check_changed(const char* what, int32_t window, Change change) {
  constexpr int32_t kLength = 600, kDim = 32;
  for (KvFormat format : kFormats) {
    PagedSequence s(kLength, kHeads, kDim, 16, format, 3);
    std::vector<float> q(kDim);
    for (float& x : q) x = uniform(s.random, -1.0f, 1.0f);
    change(s, q);
    for (int64_t t = 0; t < kLength; ++t) s.write(t);
    const std::vector<float> got = s.attend(q, kLength - 1, 1, 1, kHead, window);
    check_row(s, q.data(), kLength - 1, window, got.data(), what);
  }
}

}  // namespace

TEST(the_cache_holds_keys_and_values_in_their_place) {
  for (KvFormat format : kFormats) {
    for (int32_t block : {16, 32, 64, 128}) {
      for (int32_t dim : {16, 80}) {
        PagedSequence s(2 * block + 3, kHeads, dim, block, format, 1);
        std::fill(s.key(4, 0), s.key(4, 0) + dim, 0.0f);  // a scale of 0
        s.write(4);
        for (int64_t t = 0; t < s.length; ++t) {
          for (int32_t h = 0; h < kHeads; ++h) {
            for (bool is_value : {false, true}) {
              const float* x = is_value ? s.value(t, h) : s.key(t, h);
              const float top = std::fabs(*std::max_element(
                  x, x + dim, [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
              for (int32_t i = 0; i < dim; ++i) {
                const PagedSequence::Cached c = s.cached(is_value, t, h, i);
                const double half_step = (0.5 + 127 * gamma_n(4)) * top / 127.0f;
                const bool right =
                    format == KvFormat::kF32    ? c.value == x[i]
                    : format == KvFormat::kBf16 ? c.value == bf16_value(float_to_bf16(x[i]))
                    : format == KvFormat::kFp8
                        ? c.value == bf16_value(e4m3_to_bf16(float_to_e4m3(x[i])))
                        : std::fabs(c.value - x[i]) <= half_step && c.step == top / 127.0f;
                CHECK(right, "format %d block %d token %ld number %d: %g is held as %g",
                      static_cast<int>(format), block, t, i, static_cast<double>(x[i]), c.value);
              }
            }
          }
        }
      }
    }
  }
}

TEST(attention_equals_a_softmax_in_double) {
  for (KvFormat format : kFormats) {
    check_lengths(format, 16, 64, 3, 0);
    check_lengths(format, 32, 16, 1, 0);
    check_lengths(format, 64, 48, 5, 0);
    check_lengths(format, 128, 256, 4, 0);
    check_lengths(format, 32, 80, 2, 0);
    check_lengths(format, 16, kMaxHeadDim, 1, 0);
    for (int32_t window : {1, 15, 16, 17, 127, 128, 129, 512})
      check_lengths(format, 16, 32, 2, window);
  }
}

TEST(every_number_of_rows_equals_a_softmax_in_double) {
  constexpr int32_t kDim = 32, kLength = 530;
  for (KvFormat format : kFormats) {
    for (int32_t rows = 1; rows <= 13; ++rows) {  // passes take up to six
      PagedSequence s(kLength, kHeads, kDim, 32, format, rows);
      std::vector<float> q(rows * kDim);
      for (float& x : q) x = uniform(s.random, -1.0f, 1.0f);
      const std::vector<float> got = s.attend(q, kLength - rows, rows, 1, kHead, 300);
      for (int32_t r = 0; r < rows; ++r) {
        check_row(s, &q[r * kDim], kLength - rows + r, 300, &got[r * kDim], "rows");
      }
    }
  }
}

TEST(attention_stands_scores_that_are_hard) {
  for (int32_t window : {0, 1, 300}) {
    check_changed("large scores", window, [](PagedSequence&, std::vector<float>& q) {
      for (float& x : q) x *= 200.0f;  // most weights underflow
    });
    check_changed("tiny scores", window, [](PagedSequence&, std::vector<float>& q) {
      for (float& x : q) x *= 1e-20f;
    });
    check_changed("no query", window, [](PagedSequence&, std::vector<float>& q) {
      std::fill(q.begin(), q.end(), 0.0f);
    });
    check_changed("equal keys", window, [](PagedSequence& s, std::vector<float>&) {
      for (int64_t t = 1; t < s.length; ++t)
        std::copy_n(s.key(0, kHead), s.kv.head_dim, s.key(t, kHead));
    });
    check_changed("scores that rise", window, [](PagedSequence& s, std::vector<float>& q) {
      for (int64_t t = 0; t < s.length; ++t) {  // each tile has a new maximum, far above the last
        for (int32_t i = 0; i < s.kv.head_dim; ++i) {
          s.key(t, kHead)[i] = q[i] * static_cast<float>(t - s.length);
        }
      }
    });
    check_changed("scores that fall", window, [](PagedSequence& s, std::vector<float>& q) {
      for (int64_t t = 0; t < s.length; ++t) {
        for (int32_t i = 0; i < s.kv.head_dim; ++i)
          s.key(t, kHead)[i] = -q[i] * static_cast<float>(t);
      }
    });
  }
}

TEST(attention_gives_exactly_what_it_can) {
  for (KvFormat format : kFormats) {
    // The largest score comes last, far above the rest: all that was summed before shrinks to
    // nothing.
    PagedSequence s(600, 1, 16, 16, format, 3);
    std::vector<float> q(16, 0.0f);
    q[0] = 1000.0f;
    for (int64_t t = 0; t < s.length; ++t) {
      s.key(t, 0)[0] = t == 599 ? 1.0f : -1.0f;
      for (int32_t i = 0; i < 16; ++i) s.value(t, 0)[i] = static_cast<float>(i) / 16.0f - 0.5f;
      s.value(t, 0)[15] = 127.0f / 128.0f;  // int8: a step of 1/128
      s.write(t);
    }
    const std::vector<float> late = s.attend(q, 599, 1, 1, 0, 0);
    // Equal scores, equal values: a mean of 600 is that value. int8 weights are whole multiples of
    // a unit that rounds, and cannot promise it.
    const std::vector<float> even = s.attend(std::vector<float>(16, 0.0f), 599, 1, 1, 0, 0);
    for (int32_t i = 0; i < 16; ++i) {
      const double wanted = s.cached(true, 599, 0, i).value;
      const bool exact = format != KvFormat::kInt8;
      CHECK(exact ? late[i] == wanted : std::fabs(late[i] - wanted) <= gamma_n(3), "late %d: %g", i,
            static_cast<double>(late[i]));
      // 600 is no power of two: the quotient rounds, and the product with it.
      CHECK(std::fabs(even[i] - wanted) <= gamma_n(exact ? 2 : 20), "even %d: %g != %g", i,
            static_cast<double>(even[i]), wanted);
    }
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

}  // namespace octavo::test
