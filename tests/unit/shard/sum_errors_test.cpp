#include "shard/sum_errors.h"

#include <gtest/gtest.h>

#include "device/ledger.h"
#include "plan/memory.h"

namespace shoal {
namespace {

class SumErrorsTest : public ::testing::Test {
 protected:
  SumErrorsTest() {
    const Mesh mesh({{.name = "replica", .size = 2}, {.name = "shard", .size = 2}});
    layout_ = lay_out(
        {{"a", {{"w", {1024}, DType::bf16}, {"small", {8}, DType::bf16}, {"frozen", {512}, DType::bf16, false}}, {}},
         {"b", {{"v", {512}, DType::bf16}}, {}}},
        {.mesh = mesh, .persistence_threshold = 8});
  }
  SumErrors made(int64_t reset) {
    return SumErrors(layout_, {.stage = 3, .sum_bits = 4, .keeps_errors = true}, {.keep = 0.8f, .reset = reset},
                     *alone_, ledger_);
  }
  ModelLayout layout_;
  std::unique_ptr<Group> alone_ = make_single_group();
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
};

TEST_F(SumErrorsTest, TakeTwoBytesForEachElementOfAPartOfWhatIsQuantized) {
  SumErrors errors = made(0);
  EXPECT_EQ(ledger_->line(MemoryKind::gradients).nbytes, (1024u + 512u) / 2 * 2);
  EXPECT_EQ(errors.feed_back(0, 1).errors, nullptr) << "small parameters send exact sums";
  EXPECT_EQ(errors.feed_back(0, 2).errors, nullptr);
  const auto* first = static_cast<const std::byte*>(errors.feed_back(0, 0).errors);
  EXPECT_EQ(static_cast<const std::byte*>(errors.feed_back(1, 0).errors), first + 1024);
}

TEST_F(SumErrorsTest, BeginFromZeroAtFirstAfterAResetAndWhenForgotten) {
  SumErrors errors = made(3);
  std::vector<bool> forgets;
  for (int i = 0; i < 7; ++i) forgets.push_back(errors.feed_back(0, 0).forgets);
  EXPECT_EQ(forgets, (std::vector<bool>{true, false, false, true, false, false, true}));
  EXPECT_FALSE(errors.feed_back(0, 0).forgets);
  errors.forget();
  EXPECT_TRUE(errors.feed_back(0, 0).forgets);
}

TEST_F(SumErrorsTest, AreNotKeptUnlessAskedFor) {
  SumErrors errors(layout_, {.stage = 3, .sum_bits = 4}, {}, *alone_, ledger_);
  EXPECT_EQ(errors.feed_back(0, 0).errors, nullptr);
  EXPECT_EQ(ledger_->line(MemoryKind::gradients).nbytes, 0u);
}

}  // namespace
}  // namespace shoal
