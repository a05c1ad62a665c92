#include "checkpoint/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "shoal/error.h"
#include "training/outcome.h"
#include "unit/checkpoint/on_ranks.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::on_ranks;

const Subject kSubject{"test", "exchange"};

TEST(Exchange, TextsOfAnyLengthReachEveryRank) {
  for (const int world : {1, 2, 3, 4}) {
    on_ranks(world, [&](Group& group) {
      const std::vector<std::string> texts =
          gather_texts(group, kSubject, std::string(static_cast<size_t>(group.rank() * 1000), 'x'));
      for (int rank = 0; rank < world; ++rank)
        EXPECT_EQ(texts[static_cast<size_t>(rank)].size(), static_cast<size_t>(rank * 1000));
      EXPECT_EQ(gather_texts(group, kSubject, ""), std::vector<std::string>(static_cast<size_t>(world)));
      EXPECT_EQ(broadcast_text(group, kSubject, group.rank() == 0 ? "zero" : "other, longer"), "zero");
      EXPECT_EQ(broadcast_text(group, kSubject, group.rank() == 0 ? "" : "other"), "");
    });
  }
}

TEST(Exchange, WhenOneFailsAllKnowItsMessage) {
  on_ranks(3, [](Group& group) {
    const auto part = [&] {
      if (group.rank() == 1) throw Error("inner", "no space.");
    };
    EXPECT_EQ(failure_of(group, kSubject, part), "rank 1: no space.");
    EXPECT_EQ(shoal::testing::message_of([&] { act_together(group, kSubject, "place", part); }),
              "[place] rank 1: no space.");
    act_together(group, kSubject, "place", [] {});  // the group is as good as before
  });
}

TEST(Exchange, TheSameFailureIsSaidOnceAndOthersAreCounted) {
  on_ranks(3, [](Group& group) {
    const auto said = [&](const std::string& text) {
      return shoal::testing::message_of(
          [&] { act_together(group, kSubject, "place", [&] { throw std::runtime_error(text); }); });
    };
    EXPECT_EQ(said("same: words"), "[place] rank 0: same: words");
    EXPECT_EQ(said("words " + std::to_string(group.rank())), "[place] rank 0: words 0 (also rank 1) (also rank 2)");
  });
}

TEST(Exchange, MessageOfAnErrorIsWithoutItsPlace) {
  EXPECT_EQ(message_of(Error("a place", "what.")), "what.");
  EXPECT_EQ(message_of(std::runtime_error("[x] y")), "[x] y");
}

}  // namespace
}  // namespace shoal::checkpoint
