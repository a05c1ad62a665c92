#include "forecast/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "message_of.h"

namespace shoal::forecast {
namespace {

using shoal::testing::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Cluster, PresetsAreThoseThatTheDocumentsName) {
  EXPECT_THAT(cluster_names(), ElementsAre("V100", "A100-40", "A100-80", "H100", "H200", "B200", "GB200", "4090"));
  for (const Cluster& preset : cluster_presets()) {
    EXPECT_GT(preset.gpu.bf16_flops, 1e14) << preset.gpu.name;
    EXPECT_GT(preset.gpu.memory_bandwidth, 5e11);
    EXPECT_GT(preset.inside.bandwidth, 1e10);
    EXPECT_GT(preset.host.bus, 1e10);
    EXPECT_EQ(preset.gpus(), preset.gpus_per_host);
  }
  EXPECT_EQ(find_cluster("h100"), nullptr) << "names are as they are written";
}

TEST(Cluster, NetworksAreReadWithAndWithoutAUnit) {
  for (const char* text : {"400", "400 Gb/s", "400Gbps", "400gbps", "400gbit/s"}) {
    EXPECT_DOUBLE_EQ(between_link(text, "").bandwidth, 50e9) << text;
  }
  for (const char* text : {"", "0", "-1", "nan", "inf", "400 GB/s", "fast", "4OO"}) {
    EXPECT_THAT(message_of([&] { between_link(text, "--network"); }), HasSubstr("[--network]")) << text;
  }
}

TEST(Cluster, ALinkThatAGpuDoesNotHaveIsRefused) {
  EXPECT_THAT(message_of([] { inside_link("NVLink", find_cluster("4090")->gpu, "--inside"); }),
              HasSubstr("a GPU \"4090\" is not known to have NVLink"));
  EXPECT_DOUBLE_EQ(inside_link("PCIe", find_cluster("H100")->gpu, "").bandwidth, 55e9);
  EXPECT_THAT(message_of([] { inside_link("Token Ring", find_cluster("H100")->gpu, "x"); }),
              HasSubstr("is no link inside a host"));
}

TEST(Cluster, IsDescribedInALine) {
  Cluster cluster = *find_cluster("H100");
  EXPECT_EQ(describe(cluster), "1 host of 8 x H100, NVLink inside");
  cluster.hosts = 4;
  EXPECT_EQ(describe(cluster), "4 hosts of 8 x H100, NVLink inside, 3200 Gb/s between");
}

}  // namespace
}  // namespace shoal::forecast
