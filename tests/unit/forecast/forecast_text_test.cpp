#include "forecast/forecast_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/forecast/shapes.h"

namespace shoal::forecast {
namespace {

using ::testing::HasSubstr;

Forecast made_up() {
  Forecast forecast;
  forecast.time = {.seconds = 2,
                   .compute = 1.5,
                   .gathers = 0.25,
                   .reductions = 0.125,
                   .update = 0.025,
                   .offload = 0.1,
                   .gather_busy = 0.75,
                   .reduction_busy = 0.5,
                   .host_nbytes = 3.0 * (1 << 30)};
  forecast.rate = {.tokens = 65536, .tokens_a_gpu = 4096, .model_flops = 250e12, .mfu = 0.2528};
  forecast.micro_steps = 2;
  return forecast;
}

TEST(ForecastText, SaysWhatAStepConsistsOf) {
  Cluster cluster = *find_cluster("H100");
  cluster.hosts = 2;
  const TimeReport report{.subject = "model: 1,000 parameters, bf16",
                          .cluster = cluster,
                          .world = 16,
                          .stage = 3,
                          .sharding = {Sharding::Kind::group, 8},
                          .work = {.batch = 2, .time = 2048},
                          .recompute = "full",
                          .forecast = made_up()};
  EXPECT_EQ(time_text(report), R"(model: 1,000 parameters, bf16, stage 3, 16 ranks
2 hosts of 8 x H100, NVLink inside, 3200 Gb/s between
2 micro-steps of 2 x 2048 tokens a rank, recompute full, groups of 8

step                      2.00 s   100.0 %
compute                   1.50 s    75.0 %
exposed gathers         250.0 ms    12.5 %   750.0 ms alone
exposed reductions      125.0 ms     6.2 %   500.0 ms alone
update                   25.0 ms     1.2 %
offload                 100.0 ms     5.0 %

65,536 tokens/s, 4,096 tokens/s a GPU, 250 model TFLOP/s a GPU, MFU 25.3 %
3 GiB leave a host over the network in a step.
How far to trust this: docs/scaling.md.
)");
  const json::Value root = time_json(report);
  EXPECT_EQ(root.find("exposed_gathers")->as_number(), 0.25);
  EXPECT_EQ(root.find("sharding")->as_text(), "groups of 8");
  EXPECT_EQ(root.find("cluster")->find("hosts")->as_integer(), 2);
}

TEST(ForecastText, ShowsTheFastestSettingsAndHowToAskForThem) {
  SearchReport report;
  report.subject = "model: 1,000 parameters, bf16";
  report.cluster = *find_cluster("H100");
  report.world = 8;
  report.work = {.batch = 1, .time = 2048};
  report.answer.tried = 7;
  for (const bool ring : {true, false}) {
    Candidate candidate;
    candidate.ring_reduce = ring;
    candidate.batch = 4;
    candidate.recomputes = Recomputes::full;
    candidate.forecast = made_up();
    candidate.device_nbytes = size_t{40} << 30;
    candidate.settings = R"({"zero_optimization": {"stage": 3}})";
    candidate.flags = "--recompute full";
    report.answer.candidates.push_back(candidate);
  }
  report.shown = 1;
  EXPECT_EQ(search_text(report), R"(model: 1,000 parameters, bf16, 8 ranks, samples of 2048 tokens
1 host of 8 x H100, NVLink inside

     stage cut over       reduce  ahead    batch  steps  recompute       step    tokens/s     MFU        GPU  offload
  1  3     all ranks      nccl    config       4      1  full          2.00 s      65,536  25.3 %     40 GiB  none

2 settings fit. The 1 fastest are shown. As settings, the best first:

1. {"zero_optimization": {"stage": 3}}
   and --recompute full

reduce nccl: NCCL adds gradients, and bits may differ from run to run; exact: docs/exactness.md.
How far to trust this: docs/scaling.md.
)");
  const json::Value root = search_json(report);
  ASSERT_EQ(root.find("candidates")->as_array().size(), 2u);
  EXPECT_EQ(root.find("candidates")->as_array()[1].find("reduce")->as_text(), "exact");
}

TEST(ForecastText, SaysWhatTheLeastWouldTakeWhereNothingFits) {
  SearchReport report;
  report.subject = "model";
  report.cluster = *find_cluster("4090");
  report.answer.tried = 3;
  report.answer.least_device = size_t{30} << 30;
  EXPECT_THAT(search_text(report),
              HasSubstr("Nothing fits, of 3 settings that were tried. The least takes 30 GiB of a GPU's 24 GiB"));
}

}  // namespace
}  // namespace shoal::forecast
