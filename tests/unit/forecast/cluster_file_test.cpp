#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "forecast/cluster.h"
#include "message_of.h"
#include "temp_folder.h"

namespace shoal::forecast {
namespace {

using shoal::testing::message_of;
using ::testing::HasSubstr;

std::string wrong(const std::string& text) {
  return message_of([&] { read_cluster(text, "c.json"); });
}

TEST(ClusterFile, APresetWithOtherLinks) {
  const Cluster cluster = read_cluster(R"({"gpu": "H100", "gpus_per_host": 4, "hosts": 16, "inside": "PCIe",
      "between": {"gbits_per_second": 200, "latency_us": 5}, "host": {"memory": "512GiB"}})",
                                       "c.json");
  EXPECT_EQ(cluster.gpus(), 64);
  EXPECT_DOUBLE_EQ(cluster.inside.bandwidth, 55e9);
  EXPECT_DOUBLE_EQ(cluster.between.bandwidth, 25e9);
  EXPECT_DOUBLE_EQ(cluster.between.latency, 5e-6);
  EXPECT_EQ(cluster.between.name, "200 Gb/s");
  EXPECT_EQ(cluster.host.memory, size_t{512} << 30);
  EXPECT_DOUBLE_EQ(cluster.host.bus, 55e9) << "as the preset has it";
}

TEST(ClusterFile, AGpuByItsNumbers) {
  const Cluster cluster = read_cluster(R"({"gpu": {"name": "X1", "bf16_tflops": 100, "memory": "16GiB",
      "memory_gbytes_per_second": 500}, "gpus_per_host": 1, "between": 10, "inside": {"gbytes_per_second": 20}})",
                                       "c.json");
  EXPECT_EQ(cluster.gpu.name, "X1");
  EXPECT_DOUBLE_EQ(cluster.gpu.bf16_flops, 1e14);
  EXPECT_DOUBLE_EQ(cluster.between.bandwidth, 1.25e9);
  EXPECT_DOUBLE_EQ(cluster.inside.bandwidth, 2e10);
  const Cluster like = read_cluster(R"({"gpu": {"like": "H100", "name": "H100, 500 W", "watts": 500}})", "c.json");
  EXPECT_DOUBLE_EQ(like.gpu.bf16_flops, 989e12);
  EXPECT_DOUBLE_EQ(like.gpu.watts, 500);
  EXPECT_EQ(like.gpu.name, "H100, 500 W");
}

TEST(ClusterFile, UnknownKeysAreRefusedWithTheNearestOne) {
  EXPECT_THAT(wrong(R"({"gpu": "H100", "gpu_per_host": 8})"),
              HasSubstr("[cluster c.json] gpu_per_host: unknown key. Did you mean \"gpus_per_host\"?"));
  EXPECT_THAT(wrong(R"({"gpu": "H100", "host": {"buss_gbytes_per_second": 8}})"),
              HasSubstr("host.buss_gbytes_per_second: unknown key. Did you mean \"bus_gbytes_per_second\"?"));
  EXPECT_THAT(wrong(R"({"gpu": "H10"})"), HasSubstr("Did you mean \"H100\"?"));
  EXPECT_THAT(wrong(R"({"gpu": "H100", "colour": "red"})"), HasSubstr("colour: unknown key. Known: gpu, "));
}

TEST(ClusterFile, EveryMistakeIsSaidAtOnce) {
  const std::string message = wrong(R"({"gpu": {"bf16_tflops": -1}, "gpus_per_host": 0, "hosts": 1.5, "between": 0,
      "inside": "warp", "host": {"memory": "much", "bus_gbytes_per_second": 0}})");
  for (const char* part : {"gpu.bf16_tflops", "gpu.memory_gbytes_per_second: is missing", "gpu.memory: is missing",
                           "gpus_per_host: 0 is not", "hosts: 1.5 is not", "between: 0 is not above 0",
                           "inside: \"warp\"", "host.memory", "host.bus_gbytes_per_second: 0 is not above 0"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

TEST(ClusterFile, NonsenseIsAnError) {
  for (const char* text : {"", "[]", "7", "{\"gpu\": 7}", "{\"gpu\": \"H100\", \"inside\": []}", "{}",
                           "{\"gpu\": \"H100\", \"inside\": {\"gbytes_per_second\": 1, \"gbits_per_second\": 1}}",
                           "{\"gpu\": \"H100\", \"hosts\": 99999999999}", "{\"gpu\": \"H100\"", "{\"gpu\": null}",
                           "{\"gpu\": \"H100\", \"between\": 1e300}"}) {
    EXPECT_NE(wrong(text), "") << text;
  }
}

TEST(ClusterFile, APresetByNameOrAFileByPath) {
  EXPECT_EQ(open_cluster("H200").gpu.name, "H200");
  EXPECT_THAT(message_of([] { open_cluster("H20"); }), HasSubstr("neither a file nor a preset. Did you mean H200?"));
  const shoal::testing::TempFolder folder;
  EXPECT_EQ(open_cluster(folder.write("cluster.json", R"({"gpu": "A100-80", "hosts": 3})")).gpus(), 24);
}

}  // namespace
}  // namespace shoal::forecast
