#include "doctor/findings.h"

#include <gtest/gtest.h>

namespace shoal::doctor {
namespace {

const std::vector<Finding> kFindings = {{"memory", Health::good, "64 GiB", ""},
                                        {"io_uring", Health::poor, "forbidden", "Ask for it."}};

TEST(Findings, ARemedyStandsUnderWhatItMends) {
  EXPECT_EQ(to_text(kFindings),
            "good     memory         64 GiB\n"
            "poor     io_uring       forbidden\n"
            "                        Ask for it.\n");
}

TEST(Findings, TrainingNeedsNoGpuAndNoDriver) {
  EXPECT_TRUE(lets_train(kFindings));
  EXPECT_TRUE(lets_train({{"driver", Health::missing, "none", "Install it."}, {"GPU", Health::missing, "none", ""}}));
  EXPECT_FALSE(lets_train({{"shared memory", Health::missing, "none", "Mount it."}}));
}

TEST(Findings, AProgramReadsThemAsJson) {
  const std::string json = to_json(kFindings);
  EXPECT_NE(json.find("\"subject\": \"io_uring\""), std::string::npos) << json;
  EXPECT_NE(json.find("\"health\": \"poor\""), std::string::npos) << json;
}

}  // namespace
}  // namespace shoal::doctor
