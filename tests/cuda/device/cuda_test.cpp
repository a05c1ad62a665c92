// The door to the CUDA runtime.
#include "device/cuda.h"

#include <gtest/gtest.h>

#include <vector>

namespace shoal::cuda {
namespace {

TEST(Cuda, WithoutAGpuItCountsNoneAndSaysWhy) {
  if (device_count() > 0) GTEST_SKIP() << "there is a GPU";
  EXPECT_FALSE(why_none().empty());
}

class CudaRuntime : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << "no GPU: " << why_none();
    use_device(0);
  }
};

TEST_F(CudaRuntime, AStreamThatIsHeldBackSeesWhatCameBeforeTheEvent) {
  constexpr size_t kNbytes = size_t{256} << 20;  // long enough to be overtaken
  const Stream first, second(Stream::Priority::high);
  void* from = allocate(kNbytes);
  void* to = allocate(kNbytes);
  std::vector<unsigned char> ones(kNbytes, 1);
  copy(from, ones.data(), kNbytes, nullptr);
  synchronize(nullptr);
  Event copied;
  copy(to, from, kNbytes, first.handle());
  copied.record(first.handle());
  copied.hold_back(second.handle());
  unsigned char last = 0;
  copy(&last, static_cast<unsigned char*>(to) + kNbytes - 1, 1, second.handle());
  synchronize(second.handle());
  EXPECT_EQ(last, 1);
  EXPECT_TRUE(copied.reached());
  release(from);
  release(to);
}

TEST_F(CudaRuntime, FactsAndIdentityAreOfThisGpu) {
  const DeviceFacts facts = facts_of(0);
  EXPECT_FALSE(facts.name.empty());
  EXPECT_GT(facts.total_nbytes, facts.free_nbytes);
  EXPECT_EQ(identity_of(0), identity_of(0));
  EXPECT_EQ(identity_of(0).size(), 32u);
}

TEST_F(CudaRuntime, MemoryThatIsNotThereIsAnErrorWithTheCall) {
  try {
    allocate(facts_of(0).total_nbytes * 2);
    FAIL() << "nothing was thrown";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("cudaMalloc failed"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace shoal::cuda
