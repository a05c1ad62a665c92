#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(Monitor, KeysFillTheConfigAndComeBackInTheEffectiveOne) {
  const Config config = parse_members(R"("tensorboard": {"enabled": true, "output_path": "logs", "job_name": "a"},
      "csv_monitor": {"enabled": true}, "wandb": {"enabled": true, "group": "g", "team": "t", "project": "p"})");
  EXPECT_EQ(config.monitor.tensorboard, (FolderMonitor{true, "logs", "a"}));
  EXPECT_EQ(config.monitor.csv, (FolderMonitor{true, "", "DeepSpeedJobName"}));
  EXPECT_EQ(config.monitor.wandb, (WandbMonitor{true, "g", "t", "p"}));
  EXPECT_TRUE(config.notices.empty());
  EXPECT_EQ(Config::from_text(config.to_json()).monitor, config.monitor);
}

TEST(Monitor, IsOffByDefaultAndWhereASectionIsNullOrEmpty) {
  for (const char* text :
       {R"("tensorboard": null, "csv_monitor": {}, "wandb": null)", R"("wandb": {"enabled": false})"}) {
    EXPECT_EQ(parse_members(text).monitor, MonitorConfig{}) << text;
  }
}

TEST(Monitor, MistakesAreToldByTheirKeys) {
  EXPECT_EQ(mistakes_of(R"("tensorboard": {"enabled": false, "job": "x"})"),
            "[line 1, tensorboard.job] unknown key. docs/config.md lists the keys that may stand here.");
  EXPECT_NE(mistakes_of(R"("csv_monitor": {"output_path": 3})"), "");
}

TEST(Monitor, CometAndMlflowAreRefusedWithWhatToUse) {
  for (const char* name : {"comet", "mlflow"}) {
    const std::string message = mistakes_of("\"" + std::string(name) + "\": {\"enabled\": true}");
    EXPECT_NE(message.find("Use wandb, tensorboard or csv_monitor"), std::string::npos) << message;
  }
}

}  // namespace shoal::config
