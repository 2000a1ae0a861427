// A small test harness: TEST registers a function, CHECK counts and reports. The tests run under
// every instruction set that the processor has, and under sanitizers, without Python.
#ifndef OCTAVO_TESTS_CHECK_H_
#define OCTAVO_TESTS_CHECK_H_

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace octavo::test {

struct Case {
  const char* name;
  void (*body)();
};
std::vector<Case>& cases();
int& failures();

struct Register {
  Register(const char* name, void (*body)()) { cases().push_back({name, body}); }
};

#define TEST(name)                                              \
  static void name();                                           \
  static ::octavo::test::Register register_##name(#name, name); \
  static void name()

#define CHECK(condition, ...)                                                     \
  do {                                                                            \
    if (!(condition)) {                                                           \
      ++::octavo::test::failures();                                               \
      std::printf("  %s:%d: CHECK(%s) failed: ", __FILE__, __LINE__, #condition); \
      std::printf(__VA_ARGS__);                                                   \
      std::printf("\n");                                                          \
    }                                                                             \
  } while (false)

inline bool same_bits(const float* a, const float* b, int64_t n) {
  return std::memcmp(a, b, n * sizeof(float)) == 0;
}

// n roundings to nearest, one after the other, change a float by this share of it at the most: u =
// 2^-24 each (Higham, Accuracy and Stability of Numerical Algorithms, lemma 3.1). A sum that adds n
// terms in any order is within gamma_n(n) * sum |terms|.
constexpr double kUnit = 0x1p-24;
inline double gamma_n(double n) { return n * kUnit / (1.0 - n * kUnit); }

// A bfloat16 as a number.
inline float bf16_value(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

// Memory on a cache line, as the kernels want it, exactly as long as asked so that sanitizers see
// overruns.
template <class T>
class Aligned {
 public:
  explicit Aligned(int64_t n)
      : data_(static_cast<T*>(::operator new(n * sizeof(T), kAlignment))), n_(n) {
    std::memset(static_cast<void*>(data_), 0, n * sizeof(T));
  }
  ~Aligned() { ::operator delete(data_, kAlignment); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  T* get() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }
  int64_t size() const { return n_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  T* data_;
  int64_t n_;
};

using Random = std::mt19937;
inline float uniform(Random& random, float low, float high) {
  return std::uniform_real_distribution<float>(low, high)(random);
}
inline int integer(Random& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

}  // namespace octavo::test

#endif  // OCTAVO_TESTS_CHECK_H_
