#include "train/progress.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <cmath>
#include <functional>
#include <vector>

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

// Of 30 steps; the line of the run's last step has no time left.
std::string line_at(int64_t step, const std::string& left) {
  return "step " + std::to_string(step) +
         "/30 | loss 3.2100 | norm 1.23 | lr 0.0003 | 1,234 tokens/s | 120 ms | wait 10 %" + left;
}

// What a Progress prints while it is used so.
std::string printed_by(Progress::Options options, const std::function<void(Progress&)>& use) {
  char* text = nullptr;
  size_t nbytes = 0;
  options.out = open_memstream(&text, &nbytes);
  {
    Progress progress(options);
    use(progress);
  }
  std::fclose(options.out);
  const std::string all(text, nbytes);
  std::free(text);
  return all;
}

// For the steps 1 to 25 of 30.
std::string printed(Progress::Options options) {
  options.steps = 30;
  return printed_by(options, [](Progress& progress) {
    for (int64_t step = 1; step <= 25; ++step) progress.show(metrics_at(step), step == 25);
    progress.say("done");
  });
}

// For steps of 500 tokens that take so long, the last of them the run's last.
std::string printed(Progress::Options options, int64_t first_step, const std::vector<double>& ms) {
  options.steps = first_step + static_cast<int64_t>(ms.size()) - 1;
  return printed_by(options, [&](Progress& progress) {
    for (size_t i = 0; i < ms.size(); ++i) {
      StepMetrics metrics = metrics_at(first_step + static_cast<int64_t>(i));
      metrics.step_ms = ms[i];
      metrics.tokens_per_s = 500 / ms[i] * 1e3;
      metrics.wait_comm_ms = 25;
      progress.show(metrics, i + 1 == ms.size());
    }
  });
}
std::string times(const std::string& tokens, const std::string& ms, const std::string& wait) {
  return "loss 3.2100 | norm 1.23 | lr 0.0003 | " + tokens + " tokens/s | " + ms + " ms | wait " + wait + " %";
}

TEST(StepText, NamesTheLoadOfTheBusiestExpertOfAllLayers) {
  StepMetrics metrics = metrics_at(3);
  metrics.busiest_experts = {1.2, 3.14, 2};
  EXPECT_EQ(step_text(metrics, 30), line_at(3, " | busiest expert 3.1 x"));
}

TEST(Progress, PlainLinesAreTheFirstEveryTenthAndTheLast) {
  EXPECT_EQ(printed({.columns = 0, .log_every = 10}), line_at(1, " | 4 s left") + "\n" + line_at(10, " | 3 s left") +
                                                          "\n" + line_at(20, " | 2 s left") + "\n" + line_at(25, "") +
                                                          "\ndone\n");
}

TEST(Progress, WaitingForTiersIsShownWhereThereWasAny) {
  const std::string printed = printed_by({.steps = 3, .log_every = 10}, [](Progress& progress) {
    StepMetrics metrics = metrics_at(1);
    progress.show(metrics, false);
    metrics = metrics_at(2);
    metrics.wait_host_ms = 10;
    progress.show(metrics, false);
    metrics = metrics_at(3);
    metrics.wait_disk_ms = 62;
    progress.show(metrics, true);
  });
  EXPECT_EQ(printed.substr(printed.rfind("| wait")), "| wait 10 %, host 5 ms, disk 31 ms\n");
  EXPECT_EQ(printed.find("host"), printed.rfind("host"));
}

// Results that are read late come in bursts: a step's own time may be almost none.
TEST(Progress, TheTimesOfALineAreMeansSinceTheLineBefore) {
  EXPECT_EQ(
      printed({.log_every = 10}, 1, {1000, 300, 310, 390, 1}),
      "step 1/5 | " + times("500", "1000", "2") + " | 4 s left\nstep 5/5 | " + times("1,998", "250", "10") + "\n");
  EXPECT_EQ(printed({.log_every = 2}, 1, {1000, 300, 310, 390, 1}),
            "step 1/5 | " + times("500", "1000", "2") + " | 4 s left\nstep 2/5 | " + times("1,666", "300", "8") +
                " | 1 s left\nstep 4/5 | " + times("1,428", "350", "7") + " | 1 s left\nstep 5/5 | " +
                times("500,000", "1.0", "2500") + "\n");
}

TEST(Progress, TheFirstStepOfAResumedRunCountsInNoMean) {
  EXPECT_EQ(printed({.log_every = 10}, 43, {5000, 240, 260}), "step 45/45 | " + times("2,000", "250", "10") + "\n");
}

TEST(Progress, ABarHasTheStepsOwnTimeAndTheLastLineTheMean) {
  const std::string all = printed({.columns = 200}, 1, {1000, 300, 200});
  EXPECT_NE(all.find("step 2/3 | " + times("1,666", "300", "8")), std::string::npos) << all;
  EXPECT_NE(all.find("step 3/3 | " + times("2,000", "250", "10") + "\n"), std::string::npos) << all;
}

TEST(Progress, ATerminalShowsABarInOneLine) {
  const std::string all = printed({.columns = 200});
  EXPECT_NE(all.find("\r\033[K[##########..........] " + line_at(15, " | 2 s left")), std::string::npos);
  const std::string end = "\r\033[K" + line_at(25, "") + "\ndone\n";
  EXPECT_EQ(all.substr(all.size() - end.size()), end);
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 2);
}

// What matters most stays: where the run is, its loss, and how long it will take.
TEST(Progress, ANarrowTerminalLosesTheLeastImportantFirst) {
  const auto at_step_15 = [](int columns) {
    const std::string all = printed({.columns = columns});
    size_t begin = 0;
    for (int step = 1; step <= 15; ++step) begin = all.find("\r\033[K", begin) + 4;
    return all.substr(begin, all.find("\r\033[K", begin) - begin);
  };
  EXPECT_EQ(at_step_15(90), "[##########..........] step 15/30 | loss 3.2100 | norm 1.23 | 1,234 tokens/s | 2 s left");
  EXPECT_EQ(at_step_15(80), "[##########..........] step 15/30 | loss 3.2100 | 1,234 tokens/s | 2 s left");
  EXPECT_EQ(at_step_15(75), "[#####.....] step 15/30 | loss 3.2100 | 1,234 tokens/s | 2 s left");
  EXPECT_EQ(at_step_15(60), "step 15/30 | loss 3.2100 | 1,234 tokens/s | 2 s left");
  EXPECT_EQ(at_step_15(40), "step 15/30 | loss 3.2100 | 2 s left");
  EXPECT_EQ(at_step_15(30), "step 15/30 | loss 3.2100");
  EXPECT_EQ(at_step_15(8), "step 15");
}

// Long numbers shorten the bar before they cost the speed.
TEST(Progress, EightyColumnsKeepTheSpeedAndWhatIsLeft) {
  const std::string all =
      printed_by({.columns = 80, .steps = 1'000'000, .mfu_per_token = 1e-6}, [](Progress& progress) {
        for (const int64_t step : {123'455, 123'456}) {
          StepMetrics metrics = metrics_at(step);
          metrics.tokens_per_s = 412'345;
          progress.show(metrics, false);
        }
      });
  const std::string line = all.substr(all.rfind("step 123456"));
  EXPECT_EQ(line.substr(0, line.find('\r')),
            "step 123456/1000000 | loss 3.2100 | 412,345 tokens/s | MFU 41.2 % | 29.2 h left");
  for (size_t begin = 0; (begin = all.find("\r\033[K", begin)) != std::string::npos;) {
    begin += 4;
    EXPECT_LE(std::min(all.find_first_of("\r\n", begin), all.size()) - begin, 79u);
  }
}

TEST(Progress, SaysTheEpochAndTheShareOfThePeak) {
  const std::string all = printed_by({.steps = 30, .log_every = 10, .tokens_per_epoch = 2000, .mfu_per_token = 4e-4},
                                     [](Progress& progress) {
                                       StepMetrics metrics = metrics_at(1);
                                       metrics.tokens = 500;
                                       progress.show(metrics, true);
                                     });
  EXPECT_EQ(all,
            "step 1/30 | loss 3.2100 | norm 1.23 | lr 0.0003 | epoch 0.25 | 1,234 tokens/s | MFU 49.4 % | 120 ms | "
            "wait 10 %\n");
}

TEST(StepText, OfAStepWithoutATimeHasNoSpeed) {
  StepMetrics metrics = metrics_at(2);
  metrics.step_ms = 0;
  metrics.tokens_per_s = INFINITY;
  EXPECT_EQ(step_text(metrics, 30), "step 2/30 | loss 3.2100 | norm 1.23 | lr 0.0003 | wait 0 %");
}

// The first step starts everything; a run may end before its schedule does.
TEST(Progress, SaysHowLongItWillTakeByTheStepsAfterTheFirst) {
  const auto shown = [](int64_t last) {
    return printed_by({.steps = 1000, .last = last, .log_every = 10}, [](Progress& progress) {
      for (int64_t step = 1; step <= 10; ++step) {
        StepMetrics metrics = metrics_at(step);
        metrics.step_ms = step == 1 ? 20000 : 8000;
        progress.show(metrics, false);
      }
    });
  };
  EXPECT_NE(shown(200).find("| wait 0 % | 66 min left\nstep 10/1000"), std::string::npos) << shown(200);
  EXPECT_EQ(shown(200).substr(shown(200).rfind("| ")), "| 25 min left\n");
  EXPECT_EQ(shown(0).substr(shown(0).rfind("| ")), "| 2.2 h left\n");
}

TEST(LeftText, HasTheUnitThatSaysMost) {
  EXPECT_EQ(left_text(0), "");
  EXPECT_EQ(left_text(0.2), "1 s left");
  EXPECT_EQ(left_text(89), "89 s left");
  EXPECT_EQ(left_text(100), "2 min left");
  EXPECT_EQ(left_text(27 * 60), "27 min left");
  EXPECT_EQ(left_text(3.5 * 3600), "3.5 h left");
  EXPECT_EQ(left_text(50 * 3600), "2.1 days left");
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

TEST(StepText, SaysHowLongSavesHeldTrainingUp) {
  StepMetrics metrics = metrics_at(2);
  metrics.save_ms = 12.3;
  EXPECT_EQ(step_text(metrics, 30),
            "step 2/30 | loss 3.2100 | norm 1.23 | lr 0.0003 | 1,234 tokens/s | 120 ms | wait 10 % | save 12 ms");
}

TEST(Progress, TellsOfSavesTheSumSinceTheLineBefore) {
  const std::string text = printed_by({.steps = 30, .log_every = 5}, [](Progress& progress) {
    for (int64_t step = 1; step <= 10; ++step) {
      StepMetrics metrics = metrics_at(step);
      metrics.save_ms = step == 3 ? 40 : step == 4 ? 2 : 0;
      progress.show(metrics, false);
    }
  });
  EXPECT_NE(text.find("| save 42 ms |"), std::string::npos) << text;
  EXPECT_EQ(text.find("save"), text.rfind("save")) << "in one line: " << text;
}

TEST(StepText, NamesTheRankThatOthersWaitFor) {
  StepMetrics metrics = metrics_at(2);
  metrics.slow_rank = 3;
  EXPECT_EQ(step_text(metrics, 30),
            "step 2/30 | loss 3.2100 | norm 1.23 | lr 0.0003 | 1,234 tokens/s | 120 ms | wait 10 % | ranks wait for "
            "rank 3");
}

TEST(BarText, GoesFromEmptyToFull) {
  EXPECT_EQ(bar_text(0, 7, 4), "[....]");
  EXPECT_EQ(bar_text(4, 7, 4), "[##..]");
  EXPECT_EQ(bar_text(7, 7, 4), "[####]");
  EXPECT_EQ(bar_text(0, 0, 4), "[....]");
}

}  // namespace
}  // namespace shoal::train
