// make_process_group in one process; worlds of several are in tests/process/comm_transport_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "process/spawn.h"
#include "shoal/error.h"
#include "shoal/group.h"

namespace shoal {
namespace {

// Sets variables for one test, and takes them away again.
class ProcessGroup : public ::testing::Test {
 protected:
  void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }
  void SetUp() override {
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(testing::free_port()));
  }
  void TearDown() override {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }
  std::string complaint(Timeout timeout = std::chrono::seconds(1)) {
    try {
      ProcessGroupOptions options;
      options.timeout = timeout;
      make_process_group(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "no complaint";
  }

 private:
  std::vector<std::string> names_;
};

TEST_F(ProcessGroup, OfOneRankNeedsNoOneElse) {
  set("RANK", "0");
  set("WORLD_SIZE", "1");
  auto group = make_process_group();
  EXPECT_EQ(group->transport_name(), "one rank");
  group->barrier({"end", ""}).wait();
}

TEST_F(ProcessGroup, WithoutALauncherSaysWhatIsMissing) {
  EXPECT_THAT(complaint(), ::testing::HasSubstr("[comm rendezvous] RANK and WORLD_SIZE are not set"));
}

TEST_F(ProcessGroup, NamesAHostThatCannotBeResolved) {
  set("RANK", "1");
  set("WORLD_SIZE", "2");
  set("MASTER_ADDR", "no such host");
  EXPECT_THAT(complaint(), ::testing::HasSubstr("[comm rank 1] MASTER_ADDR=no such host cannot be resolved"));
}

TEST_F(ProcessGroup, NamesTheRanksThatDoNotJoin) {
  set("RANK", "0");
  set("WORLD_SIZE", "3");
  EXPECT_THAT(complaint(),
              ::testing::HasSubstr("[comm rank 0] joining the world: ranks 1, 2 did not arrive within 1 s"));
}

}  // namespace
}  // namespace shoal
