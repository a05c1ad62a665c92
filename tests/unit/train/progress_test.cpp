#include "train/progress.h"

#include <gtest/gtest.h>

namespace shoal::train {
namespace {

StepMetrics metrics_at(int64_t step) {
  return {.step = step,
          .loss = 3.21,
          .grad_norm = 1.234,
          .lr = 3e-4,
          .tokens_per_s = 1234.5,
          .step_ms = 120,
          .wait_comm_ms = 12};
}

std::string line_at(int64_t step) {
  return "step " + std::to_string(step) +
         "/30 | loss 3.2100 | norm 1.23 | lr 0.0003 | 1,234 tokens/s | 120 ms | wait 10 %";
}

// What a Progress prints for the steps 1 to 30.
std::string printed(Progress::Options options) {
  char* text = nullptr;
  size_t nbytes = 0;
  options.out = open_memstream(&text, &nbytes);
  options.steps = 30;
  {
    Progress progress(options);
    for (int64_t step = 1; step <= 25; ++step) progress.show(metrics_at(step), step == 25);
    progress.say("done");
  }
  std::fclose(options.out);
  const std::string all(text, nbytes);
  std::free(text);
  return all;
}

TEST(Progress, PlainLinesAreTheFirstEveryTenthAndTheLast) {
  EXPECT_EQ(printed({.columns = 0, .log_every = 10}),
            line_at(1) + "\n" + line_at(10) + "\n" + line_at(20) + "\n" + line_at(25) + "\ndone\n");
}

// Results that are read late come in bursts: a step's own time may be almost none.
TEST(Progress, TheTimesOfALineAreMeansSinceTheLineBefore) {
  char* text = nullptr;
  size_t nbytes = 0;
  std::FILE* out = open_memstream(&text, &nbytes);
  {
    Progress progress({.out = out, .steps = 5, .log_every = 10});
    const double ms[] = {1000, 300, 310, 390, 1};
    for (int64_t step = 1; step <= 5; ++step) {
      StepMetrics metrics = metrics_at(step);
      metrics.step_ms = ms[step - 1];
      metrics.tokens_per_s = 500 / metrics.step_ms * 1e3;  // 500 tokens a step
      metrics.wait_comm_ms = 25;
      progress.show(metrics, step == 5);
    }
  }
  std::fclose(out);
  const std::string all(text, nbytes);
  std::free(text);
  EXPECT_NE(all.find("step 1/5 | loss 3.2100 | norm 1.23 | lr 0.0003 | 500 tokens/s | 1000 ms | wait 2 %\n"),
            std::string::npos)
      << all;
  EXPECT_NE(all.find("step 5/5 | loss 3.2100 | norm 1.23 | lr 0.0003 | 1,998 tokens/s | 250 ms | wait 10 %\n"),
            std::string::npos)
      << all;
}

TEST(Progress, ATerminalShowsABarInOneLine) {
  const std::string all = printed({.columns = 200});
  EXPECT_NE(all.find("\r\033[K[##########..........] " + line_at(15)), std::string::npos);
  const std::string end = "\r\033[K" + line_at(25) + "\ndone\n";
  EXPECT_EQ(all.substr(all.size() - end.size()), end);
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 2);
}

TEST(Progress, TheBarFitsIntoANarrowTerminal) {
  const std::string all = printed({.columns = 40});
  const size_t begin = all.find("\r\033[K[");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(all.find("\r\033[K", begin + 1) - begin, 4 + 39u);
}

TEST(Progress, OtherRanksAreQuiet) { EXPECT_EQ(printed({.columns = 200, .quiet = true}), ""); }

TEST(StepText, SaysTheScaleAndWhySomethingWasSkipped) {
  StepMetrics metrics = metrics_at(2);
  metrics.loss_scale = 65536;
  metrics.skipped = true;
  EXPECT_EQ(step_text(metrics, 30),
            "step 2/30 | loss 3.2100 | norm 1.23 | lr 0.0003 | scale 65536 | 1,234 tokens/s | 120 ms | wait 10 % | "
            "skipped: a gradient is not finite");
}

TEST(BarText, GoesFromEmptyToFull) {
  EXPECT_EQ(bar_text(0, 7, 4), "[....]");
  EXPECT_EQ(bar_text(4, 7, 4), "[##..]");
  EXPECT_EQ(bar_text(7, 7, 4), "[####]");
  EXPECT_EQ(bar_text(0, 0, 4), "[....]");
}

}  // namespace
}  // namespace shoal::train
