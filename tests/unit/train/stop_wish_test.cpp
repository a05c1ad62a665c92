#include "train/stop_wish.h"
#include "base/unix_time.h"

#include <gtest/gtest.h>

namespace shoal::train {
namespace {

TrainOptions with_folder() {
  TrainOptions options;
  options.out = "run";
  return options;
}

TEST(StopWish, IsTheSignalThatCame) {
  const StopWish wish(with_folder());
  EXPECT_EQ(wish.reason(), 0);
  ::raise(SIGUSR1);
  EXPECT_EQ(wish.reason(), SIGUSR1);
}

TEST(StopWish, ComesWhenTheTimeIsOver) {
  TrainOptions options = with_folder();
  options.ends_at = unix_seconds() + 3600;
  EXPECT_EQ(StopWish(options).reason(), 0);
  options.ends_at = unix_seconds() - 1;
  const StopWish late(options);
  EXPECT_EQ(late.reason(), kTimeIsOver);
  ::raise(SIGTERM);
  EXPECT_EQ(late.reason(), SIGTERM);
}

TEST(StopWish, AllButCtrlCSave) {
  TrainOptions options = with_folder();
  for (const int reason : {SIGTERM, SIGUSR1, kTimeIsOver}) EXPECT_TRUE(saves_before(reason, options)) << reason;
  EXPECT_FALSE(saves_before(SIGINT, options));
  options.save_on_exit = true;
  EXPECT_TRUE(saves_before(SIGINT, options));
  options.save_at_end = false;
  EXPECT_TRUE(saves_before(SIGINT, options));
  options.save_on_exit = false;
  EXPECT_FALSE(saves_before(SIGTERM, options)) << "--no-final-save";
  EXPECT_FALSE(saves_before(SIGTERM, {})) << "no folder";
}

TEST(StopWish, EndsWithACodeOfItsOwn) {
  EXPECT_EQ(exit_code_of(SIGTERM), 143);
  EXPECT_EQ(exit_code_of(kTimeIsOver), 75);
  EXPECT_EQ(stop_text(SIGTERM, 7), "stopped after step 7 by signal 15");
  EXPECT_EQ(stop_text(kTimeIsOver, 7), "stopped after step 7, since the time of --max-hours is over");
  EXPECT_EQ(event_line("stopped", 7, stop_facts(SIGTERM)).find("\"signal\": 15") != std::string::npos, true);
  EXPECT_EQ(event_line("stopped", 7, stop_facts(kTimeIsOver)).find("\"why\": ") != std::string::npos, true);
}

}  // namespace
}  // namespace shoal::train
