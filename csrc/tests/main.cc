#include <cstdlib>

#include "kernels/kernel_table.h"
#include "tests/check.h"

namespace octavo::test {

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

int& failures() {
  static int count = 0;
  return count;
}

}  // namespace octavo::test

// Exit status 77 tells ctest that this processor lacks the instruction set asked for.
int main() {
  const octavo::KernelTable* table = octavo::kernels();
  if (table == nullptr) {
    std::printf("this processor runs only %s\n", octavo::supported_isas());
    return 77;
  }
  int failed = 0;
  for (const octavo::test::Case& c : octavo::test::cases()) {
    const int before = octavo::test::failures();
    c.body();
    const bool ok = octavo::test::failures() == before;
    failed += !ok;
    std::printf("%s %s (%s)\n", ok ? "ok  " : "FAIL", c.name, table->name);
  }
  std::printf("%d passed, %d failed\n", static_cast<int>(octavo::test::cases().size()) - failed,
              failed);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
