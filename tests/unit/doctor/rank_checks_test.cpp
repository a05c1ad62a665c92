#include "doctor/rank_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shoal/error.h"
#include "temp_folder.h"
#include "training/matrix_run.h"

namespace shoal::doctor {
namespace {

using ::testing::HasSubstr;

CheckedRanks check(int ranks, const std::string& disk, int hosts = 1) {
  const auto all = testing::on_threads<CheckedRanks>(ranks, [&](Group& world) {
    const std::string host = "host " + std::to_string(world.rank() % hosts);
    return check_ranks(world, {.device = at::kCPU, .host = host, .disk = disk, .seconds_a_round = 0.001});
  });
  for (const CheckedRanks& each : all) EXPECT_EQ(to_json(each.rates, each.hosts), to_json(all[0].rates, all[0].hosts));
  return all[0];
}

TEST(CheckRanks, MeasuresEverythingOfEveryRank) {
  const testing::TempFolder folder;
  for (const int ranks : {2, 3}) {
    const CheckedRanks checked = check(ranks, folder.path());
    ASSERT_EQ(checked.rates.size(), static_cast<size_t>(ranks));
    for (const RankRates& rates : checked.rates) {
      for (const RateKind& kind : kRateKinds) {
        if (kind.name == "network") {
          EXPECT_EQ(rates.*kind.rate, 0) << "there is one host";
        } else {
          EXPECT_GT(rates.*kind.rate, 0) << kind.name;
        }
      }
    }
    EXPECT_EQ(checked.hosts[0], "host 0");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "nothing is left behind";
}

TEST(CheckRanks, MeasuresBothKindsOfLinksOfSeveralHosts) {
  for (const RankRates& rates : check(4, "", 2).rates) {
    EXPECT_GT(rates.link, 0);
    EXPECT_GT(rates.network, 0);
  }
}

TEST(CheckRanks, WithoutAFolderNoDiskIsMeasured) { EXPECT_EQ(check(2, "").rates[1].disk_write, 0); }

TEST(CheckRanks, ADiskThatCannotBeWrittenEndsAllRanks) {
  try {
    check(2, "/proc/no/such/folder");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot write to /proc/no/such/folder"));
  }
}

}  // namespace
}  // namespace shoal::doctor
