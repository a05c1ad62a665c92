#include "kernels/narrow_arithmetic.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace shoal::kernels {
namespace {

// The features that the kernel lists: "flags : ..." on x86-64, "Features : ..." on aarch64.
std::set<std::string> features() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

TEST(NarrowArithmetic, IsWhatTheKernelListsAsFeatures) {
  const std::set<std::string> listed = features();
  if (listed.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no features";
#if defined(__x86_64__)
  const bool bf16 = listed.count("avx512_bf16") > 0, fp16 = listed.count("avx512_fp16") > 0;
#else
  const bool bf16 = listed.count("bf16") > 0, fp16 = false;
#endif
  EXPECT_EQ(why_no_arithmetic(DType::f32), "");
  EXPECT_EQ(why_no_arithmetic(DType::bf16), bf16 ? "" : "this processor has no bf16 arithmetic");
  EXPECT_EQ(why_no_arithmetic(DType::f16).empty(), fp16);
}

}  // namespace
}  // namespace shoal::kernels
