// Ranks that find each other through what launchers give them: torchrun itself, which serves the store, and the
// variables of mpirun and srun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "collectives/collective_cases.h"
#include "process/spawn.h"
#include "shoal/error.h"
#include "shoal/group.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::Ranks;

int meet() {
  auto group = make_process_group();
  testing::check_all_reduce(*group, testing::Memory::of_group, DType::f32, 1001);
  group->barrier({"end", ""}).wait();
  std::printf("rank %d of %d met over %s\n", group->rank(), group->size(), group->transport_name().c_str());
  return 0;
}

// The launcher's variables, made from those that the harness gave; torchrun's are taken away.
int meet_as(const std::map<std::string, std::string>& same, const char* rank, const char* world, const char* local) {
  setenv(rank, std::getenv("RANK"), 1);
  setenv(world, std::getenv("WORLD_SIZE"), 1);
  setenv(local, std::getenv("LOCAL_RANK"), 1);
  for (const auto& [name, value] : same) setenv(name.c_str(), value.c_str(), 1);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"}) unsetenv(name);
  return meet();
}
int meet_by_mpirun() {
  return meet_as({{"OMPI_COMM_WORLD_LOCAL_SIZE", std::getenv("WORLD_SIZE")}}, "OMPI_COMM_WORLD_RANK",
                 "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK");
}
int meet_by_srun() {
  return meet_as({{"SLURM_NODELIST", "localhost,other[1-2]"}}, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID");
}

TEST(Launchers, RanksMeetThroughMpirunsAndSrunsVariables) {
  for (const std::string mode : {"mpirun", "srun"}) {
    const auto outcomes = Ranks({.world = 2, .mode = mode}).wait();
    EXPECT_THAT(outcomes[1].output, HasSubstr("rank 1 of 2 met over shared memory")) << mode;
  }
}

TEST(Launchers, ARankNumberThatIsGivenTwiceIsAnError) {
  // As when two runs share a port by mistake.
  Ranks ranks({.world = 2, .mode = "alike"});
  EXPECT_TRUE(ranks.wait_for_output_of_any("another process has joined as rank 0 already"));
}

int join_as_rank_zero_twice() {
  const bool server = std::string(std::getenv("RANK")) == "0";
  setenv("TORCHELASTIC_USE_AGENT_STORE", server ? "False" : "True", 1);
  setenv("RANK", "0", 1);
  setenv("LOCAL_RANK", "0", 1);
  make_process_group();
  return 0;
}

TEST(Launchers, TorchrunsOwnStoreIsUsed) {
  const std::string torchrun = std::string(SHOAL_SOURCE_DIR) + "/.venv/bin/torchrun";
  if (access(torchrun.c_str(), X_OK) != 0) GTEST_SKIP() << "no torchrun in .venv/bin";
  std::array<char, 4096> self{};
  ASSERT_GT(readlink("/proc/self/exe", self.data(), self.size() - 1), 0);
  for (const std::string transport : {"shm", "gloo"}) {
    const std::string command = "SHOAL_TRANSPORT=" + transport + " OMP_NUM_THREADS=1 " + torchrun +
                                " --no-python --nproc-per-node 2 --master-port " +
                                std::to_string(testing::free_port()) + " " + self.data() + " --rank-mode=meet 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    ASSERT_TRUE(pipe);
    std::string output;
    std::array<char, 4096> chunk{};
    while (std::fgets(chunk.data(), chunk.size(), pipe) != nullptr) output += chunk.data();
    EXPECT_EQ(pclose(pipe), 0) << output;
    EXPECT_THAT(output,
                HasSubstr("rank 1 of 2 met over " + std::string(transport == "shm" ? "shared memory" : "gloo")));
  }
}

}  // namespace

int run(int argc, char** argv) {
  return testing::rank_main(
      argc, argv,
      {{"meet", meet}, {"mpirun", meet_by_mpirun}, {"srun", meet_by_srun}, {"alike", join_as_rank_zero_twice}});
}

}  // namespace shoal

int main(int argc, char** argv) { return shoal::run(argc, argv); }
