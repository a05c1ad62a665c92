#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(Offload, NoneIsAccepted) {
  EXPECT_EQ(mistakes_of(R"("zero_optimization": {"offload_param": null, "offload_optimizer": {"device": "none"}})"),
            "");
}

TEST(Offload, TheTierOfTheOptimizerIsCarriedOutAtAnyStage) {
  EXPECT_EQ(parse_members(R"("zero_optimization": {"offload_optimizer": {"device": "cpu"}})").zero.offload_optimizer,
            (OffloadConfig{.tier = Tier::host}));
  const Config config = parse_members(R"("zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme",
      "nvme_path": "/local", "buffer_count": 7, "ratio": 0.25, "pipeline_read": true}})");
  EXPECT_EQ(config.zero.offload_optimizer,
            (OffloadConfig{.tier = Tier::disk, .nvme_path = "/local", .buffer_count = 7, .ratio = 0.25}));
  EXPECT_EQ(config.notices,
            (std::vector<std::string>{"zero_optimization.offload_optimizer.pipeline_read has no effect: "
                                      "reading always runs ahead of the update."}));
}

TEST(Offload, TheDiskNeedsAPath) {
  EXPECT_EQ(mistakes_of(R"("zero_optimization": {"offload_optimizer": {"device": "nvme"}})"),
            "[line 1, zero_optimization.offload_optimizer.device] \"nvme\" needs a folder on that disk. Give it as "
            "nvme_path.");
}

TEST(Offload, ParametersGoToTheHostOrToTheDisk) {
  EXPECT_EQ(
      parse_members(R"("zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}})").zero.offload_param,
      (OffloadConfig{.tier = Tier::host, .buffer_count = 5}));
  const Config config = parse_members(R"("zero_optimization": {"stage": 3, "offload_param": {"device": "nvme",
      "nvme_path": "/local", "buffer_count": 7, "max_in_cpu": 1000}})");
  EXPECT_EQ(config.zero.offload_param,
            (OffloadConfig{.tier = Tier::disk, .nvme_path = "/local", .buffer_count = 7, .max_in_cpu = 1000}));
  EXPECT_EQ(config.notices, std::vector<std::string>{});
  EXPECT_EQ(mistakes_of(R"("zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}})"),
            "[line 1, zero_optimization.offload_param.device] \"nvme\" needs a folder on that disk. Give it as "
            "nvme_path.");
}

TEST(Offload, WhatTheDeviceDoesNotDoIsSaid) {
  const auto notices = [](const std::string& members) { return parse_members(members).notices; };
  EXPECT_EQ(notices(R"("zero_optimization": {"offload_optimizer": {"ratio": 0.5, "nvme_path": null}})"),
            (std::vector<std::string>{"zero_optimization.offload_optimizer.ratio: has no effect while "
                                      "zero_optimization.offload_optimizer.device is none."}));
  EXPECT_EQ(notices(R"("zero_optimization": {"stage": 3, "offload_param": {"device": "cpu", "nvme_path": "/local"}})"),
            (std::vector<std::string>{"zero_optimization.offload_param.nvme_path: has no effect while "
                                      "zero_optimization.offload_param.device is cpu."}));
  EXPECT_EQ(notices(R"("zero_optimization": {"offload_optimizer": {"nvme_path": "/local"}},)"
                    R"("shoal": {"placement": "auto"})"),
            std::vector<std::string>{});
  EXPECT_EQ(notices(R"("shoal": {"host_budget": 5})"),
            std::vector<std::string>{"shoal.host_budget: only placement auto and --recompute auto read it."});
}

TEST(Offload, MistakesAreNamed) {
  EXPECT_EQ(mistakes_of(R"("zero_optimization": {"offload_optimizer": {"device": "gpu"}})"),
            "[line 1, zero_optimization.offload_optimizer.device] \"gpu\" is not known. Did you mean \"cpu\"? Give one "
            "of none, cpu, "
            "nvme.");
  EXPECT_NE(mistakes_of(R"("zero_optimization": {"offload_optimizer": {"ratio": 1.5}})"), "");
  EXPECT_NE(mistakes_of(R"("zero_optimization": {"offload_param": {"buffer_count": 0}})"), "");
  EXPECT_NE(parse_members(R"("zero_optimization": {"offload_optimizer": {"super_offload": true}})")
                .notices.at(0)
                .find("shoal.speculative_update"),
            std::string::npos);
}

}  // namespace shoal::config
