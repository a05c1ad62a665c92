#include "train/run_facts.h"

#include <gmock/gmock.h>

#include "base/json.h"
#include "message_of.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

Config some_config() { return Config::from_text(R"({"train_batch_size": 8})"); }

TEST(RunFacts, AreTheEffectiveConfigAndWhatTheRunWasStartedWith) {
  const testing::TempFolder folder;
  TrainOptions options;
  options.model = "gpt2";
  options.data = "synthetic";
  options.seed = 7;
  options.steps = 20;
  const Config config = some_config();
  write_run_facts(folder.path(), options, {.sequence = 64, .validation = 0.5, .seed = 7}, config, {3, 2, "shm"},
                  {.per_token = 6e6, .peak = 0, .device = "cpu"}, 90);
  EXPECT_EQ(Config::from_text(folder.read("config.json")), config);
  EXPECT_EQ(
      json::write(json::parse(folder.read("run.json"), "run.json")),
      R"({"model": "gpt2", "data": "synthetic", "sequence": 64, "validation": 0.5, "packing": "auto", "seed": 7, "steps": 20, )"
      R"("ranks": 2, "threads": 3, "transport": "shm", "train_samples": 90, "device": "cpu", "flops_per_token": 6000000, )"
      R"("peak_flops": null})");
}

TEST(RunFacts, AFolderThatCannotBeWrittenIsAnError) {
  EXPECT_THAT(testing::message_of([] { write_run_facts("/dev/null/run", {}, {}, some_config(), {}, {}, 0); }),
              ::testing::HasSubstr("[--out /dev/null/run/config.json] cannot be written"));
}

}  // namespace
}  // namespace shoal::train
