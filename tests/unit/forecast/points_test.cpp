#include "forecast/points.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "message_of.h"

namespace shoal::forecast {
namespace {

using shoal::testing::message_of;
using ::testing::HasSubstr;

std::string with_point(const std::string& point) {
  return R"({"models": {"m": {"hidden": 256, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 512, "vocab": 1000}},
             "sources": [{"name": "s", "engine": "fsdp", "kernels": "eager", "gpus_per_host": 4, "points": [)" +
         point + "]}]}";
}

TEST(Points, TakeFromTheirSourceWhatTheyDoNotSay) {
  const auto points = read_points(
      with_point(R"({"model": "m", "gpu": "H100", "gpus": 8, "between": 400, "time": 128, "batch": 2, "tokens": 512})"),
      "f");
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].source, "s");
  EXPECT_EQ(points[0].name, "m, 8 x H100, 400 Gb/s, 2 x 128");
  EXPECT_EQ(points[0].cluster.hosts, 2);
  EXPECT_EQ(points[0].shape.kv_width, 128);
  EXPECT_DOUBLE_EQ(points[0].seconds, 0.5);
  EXPECT_TRUE(points[0].fits);
  EXPECT_GT(forecast_of(points[0], {}).seconds, 0);
}

TEST(Points, AMistakeIsNamedWithItsLine) {
  const auto message = [](const std::string& point) {
    return message_of([&] { read_points(with_point(point), "f"); });
  };
  EXPECT_THAT(message(R"({"model": "x", "gpu": "H100", "gpus": 1, "time": 1, "seconds": 1})"),
              HasSubstr("[f line 2] model"));
  EXPECT_THAT(message(R"({"model": "m", "gpu": "Z80", "gpus": 1, "time": 1, "seconds": 1})"),
              HasSubstr("gpu is missing"));
  EXPECT_THAT(message(R"({"model": "m", "gpu": "H100", "gpus": 0, "time": 1, "seconds": 1})"), HasSubstr("gpus"));
  EXPECT_THAT(message(R"({"model": "m", "gpu": "H100", "gpus": 1, "time": 1})"),
              HasSubstr("seconds, tokens or tflops"));
  EXPECT_THAT(message_of([] { read_points("{}", "f"); }), HasSubstr("bench/step_times.json"));
}

// What TFLOP/s mean is said by the source: by its own count ZeRO-3 would send more than the network carries.
TEST(Points, TflopsMayCountRecompute) {
  const std::string point = R"({"model": "m", "gpu": "H100", "gpus": 1, "time": 128, "tflops": 1)";
  const double model = read_points(with_point(point + "}"), "f")[0].seconds;
  EXPECT_NEAR(read_points(with_point(point + R"(, "flops": "with recompute"})"), "f")[0].seconds, model * 4 / 3, 1e-12);
}

TEST(Points, TheFileHoldsEveryPointThatTheFitIsTold) {
  const std::string path = SHOAL_SOURCE_DIR "/bench/step_times.json";
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::map<std::string, int> of;
  for (const Point& point : read_points(text.str(), path)) {
    if (point.fits) ++of[point.source];
  }
  EXPECT_EQ(of, (std::map<std::string, int>{{"llm-foundry", 9},
                                            {"torchtitan", 4},
                                            {"KempnerForge", 3},
                                            {"ZeRO++", 8},
                                            {"fms-fsdp", 2},
                                            {"Megatron-FSDP", 1},
                                            {"Shoal", 7}}));
}

}  // namespace
}  // namespace shoal::forecast
