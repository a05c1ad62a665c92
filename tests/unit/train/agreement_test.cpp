#include "train/agreement.h"

#include <gmock/gmock.h>

#include "unit/comm/rank_threads.h"

namespace shoal::train {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST(Agreement, EqualFactsPassOnEveryRank) {
  EXPECT_THAT(testing::outcomes_of(make_thread_groups(3),
                                   [](auto& group) {
                                     check_agreement({{"--seed", "1"}, {"--data", "x"}}, *group);
                                   }),
              Each(""));
}

TEST(Agreement, EveryRankSaysWhichRankDiffersInWhat) {
  const auto outcomes = testing::outcomes_of(make_thread_groups(3), [](auto& group) {
    check_agreement({{"--seed", group->rank() == 2 ? "2" : "1"}, {"--data", group->rank() == 1 ? "y" : "x"}}, *group);
  });
  EXPECT_THAT(outcomes, Each(HasSubstr("[train] ranks differ from rank 0: rank 1 in --data, rank 2 in --seed.")));
}

}  // namespace
}  // namespace shoal::train
