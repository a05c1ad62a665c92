#include "doctor/host_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace shoal::doctor {
namespace {

using ::testing::HasSubstr;

TEST(HostChecks, LittleLockedMemoryIsPoorAndSaysHowToRaiseIt) {
  const Finding finding = judge_locked_memory(uint64_t{8} << 20, uint64_t{64} << 30, false);
  EXPECT_EQ(finding.health, Health::poor);
  EXPECT_THAT(finding.remedy, HasSubstr("ulimit -l unlimited"));
  EXPECT_EQ(judge_locked_memory(0, uint64_t{64} << 30, true).health, Health::good);
  EXPECT_EQ(judge_locked_memory(uint64_t{32} << 30, uint64_t{64} << 30, false).health, Health::good);
}

TEST(HostChecks, TheSharedMemoryOfAContainerIsPoor) {
  EXPECT_EQ(judge_shared_memory(uint64_t{64} << 20, uint64_t{64} << 30).health, Health::poor);
  EXPECT_EQ(judge_shared_memory(uint64_t{32} << 30, uint64_t{64} << 30).health, Health::good);
}

TEST(HostChecks, AForbiddenIoUringIsToldFromOneThatIsNotThere) {
  EXPECT_EQ(judge_io_uring(0).health, Health::good);
  EXPECT_THAT(judge_io_uring(EPERM).remedy, HasSubstr("forbids"));
  EXPECT_THAT(judge_io_uring(ENOSYS).remedy, HasSubstr("has none"));
}

TEST(HostChecks, EverySubjectIsLookedAt) {
  std::vector<std::string> subjects;
  for (const Finding& finding : check_host()) {
    subjects.push_back(finding.subject);
    EXPECT_FALSE(finding.text.empty()) << finding.subject;
    EXPECT_EQ(finding.health == Health::good, finding.remedy.empty()) << finding.subject;
  }
  EXPECT_THAT(subjects, ::testing::ElementsAre("processor", "memory", "locked memory", "shared memory", "io_uring"));
}

}  // namespace
}  // namespace shoal::doctor
