// The environments of torchrun, mpirun and srun, whole, incomplete and contradictory.
#include "comm/rendezvous/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "shoal/error.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using Env = std::map<std::string, std::string>;

Rendezvous read(const Env& env) {
  return read_rendezvous([&](const char* name) {
    const auto found = env.find(name);
    return found == env.end() ? nullptr : found->second.c_str();
  });
}

std::string complaint(const Env& env) {
  try {
    read(env);
  } catch (const Error& error) {
    return error.what();
  }
  return "no complaint";
}

const Env kTorchrun{{"RANK", "3"},        {"WORLD_SIZE", "4"},    {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"},
                    {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1234"}};

Env with(Env env, const std::string& name, const std::string& value) {
  env[name] = value;
  return env;
}
Env without(Env env, const std::string& name) {
  env.erase(name);
  return env;
}

TEST(Rendezvous, ReadsTorchrun) {
  const Rendezvous found = read(kTorchrun);
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.world, 4);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.host, "h");
  EXPECT_EQ(found.port, 1234);
  EXPECT_FALSE(found.store_is_served);
}

TEST(Rendezvous, UsesTheStoreThatTorchrunServes) {
  Env env = with(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True"), "TORCHELASTIC_RESTART_COUNT", "2");
  EXPECT_TRUE(read(env).store_is_served);
  EXPECT_EQ(read(env).attempt, "2");
}

TEST(Rendezvous, ReadsMpirun) {
  Env env{{"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_EQ(read(env).rank, 1);
  EXPECT_EQ(read(env).world, 2);
  EXPECT_EQ(read(env).local_rank, 1);
  EXPECT_EQ(read(env).host, "127.0.0.1");
  EXPECT_EQ(read(env).port, 29500);
  env["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  EXPECT_THAT(complaint(env), HasSubstr("MASTER_ADDR is not set, and mpirun does not say where rank 0 is"));
  env["MASTER_ADDR"] = "node1";
  EXPECT_EQ(read(env).host, "node1");
}

TEST(Rendezvous, ReadsSrun) {
  Env env{{"SLURM_PROCID", "5"},
          {"SLURM_NTASKS", "8"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODELIST", "gpu[07-09],x"},
          {"SLURM_JOB_ID", "100007"}};
  EXPECT_EQ(read(env).rank, 5);
  EXPECT_EQ(read(env).world, 8);
  EXPECT_EQ(read(env).local_rank, 1);
  EXPECT_EQ(read(env).host, "gpu07");
  EXPECT_EQ(read(env).port, 29507);
  EXPECT_THAT(complaint(without(env, "SLURM_NODELIST")), HasSubstr("Neither MASTER_ADDR nor SLURM_NODELIST is set"));
}

TEST(Rendezvous, TorchrunInsideSlurmOrMpirunCounts) {
  Env env = kTorchrun;
  env.insert(
      {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"TORCHELASTIC_RUN_ID", "x"}});
  EXPECT_EQ(read(env).rank, 3);
  env.erase("TORCHELASTIC_RUN_ID");
  EXPECT_THAT(complaint(env), HasSubstr("RANK=3 contradicts OMPI_COMM_WORLD_RANK=0"));
}

TEST(Rendezvous, NamesWhatIsMissing) {
  EXPECT_THAT(complaint({}), HasSubstr("[comm rendezvous] RANK and WORLD_SIZE are not set"));
  EXPECT_THAT(complaint(without(kTorchrun, "RANK")), HasSubstr("RANK is not set"));
  EXPECT_THAT(complaint({{"RANK", "0"}}), HasSubstr("WORLD_SIZE, MASTER_ADDR, MASTER_PORT are not set"));
  EXPECT_THAT(complaint({{"OMPI_COMM_WORLD_RANK", "0"}}), HasSubstr("OMPI_COMM_WORLD_SIZE is not set"));
}

TEST(Rendezvous, NamesWhatIsWrongOrContradictory) {
  EXPECT_THAT(complaint(with(kTorchrun, "RANK", "4")), HasSubstr("RANK=4 contradicts WORLD_SIZE=4"));
  EXPECT_THAT(complaint(with(kTorchrun, "RANK", "-1")), HasSubstr("RANK=-1 is not a number from 0"));
  EXPECT_THAT(complaint(with(kTorchrun, "WORLD_SIZE", "two")), HasSubstr("WORLD_SIZE=two is not a number"));
  EXPECT_THAT(complaint(with(kTorchrun, "WORLD_SIZE", "0")), HasSubstr("WORLD_SIZE=0 is not a number from 1"));
  EXPECT_THAT(complaint(with(kTorchrun, "MASTER_PORT", "70000")), HasSubstr("MASTER_PORT=70000"));
  EXPECT_THAT(complaint(with(kTorchrun, "MASTER_PORT", "80x")), HasSubstr("MASTER_PORT=80x"));
  EXPECT_THAT(complaint(with(kTorchrun, "LOCAL_RANK", "2")), HasSubstr("LOCAL_WORLD_SIZE=2 contradicts LOCAL_RANK=2"));
  EXPECT_THAT(complaint(with(with(kTorchrun, "RANK", "0"), "LOCAL_RANK", "1")),
              HasSubstr("LOCAL_RANK=1 contradicts RANK=0"));
}

TEST(Rendezvous, FirstHostOfSlurmLists) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("node[003-005,7],gpu1"), "node003");
  EXPECT_EQ(first_host("node[7,9]"), "node7");
  EXPECT_EQ(first_host("rack[1-2]n[03-04]"), "rack1n03");
  EXPECT_EQ(first_host(""), "");
}

int local_ranks(const Env& env, int world) {
  return read_local_ranks(
      [&](const char* name) {
        const auto found = env.find(name);
        return found == env.end() ? nullptr : found->second.c_str();
      },
      world);
}

TEST(Rendezvous, CountsTheRanksOfThisHost) {
  EXPECT_EQ(local_ranks({}, 6), 6);
  EXPECT_EQ(local_ranks({{"LOCAL_WORLD_SIZE", "2"}, {"SLURM_TASKS_PER_NODE", "4"}}, 6), 2);
  EXPECT_EQ(local_ranks({{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}}, 6), 3);
  EXPECT_EQ(local_ranks({{"SLURM_TASKS_PER_NODE", "8"}}, 1), 1);
}

TEST(Rendezvous, ReadsHowSlurmSpreadsTasks) {
  const auto on_node = [](const char* list, const char* node) {
    return local_ranks({{"SLURM_TASKS_PER_NODE", list}, {"SLURM_NODEID", node}}, 100);
  };
  EXPECT_EQ(on_node("2", "0"), 2);
  EXPECT_EQ(on_node("2,1", "0"), 2);
  EXPECT_EQ(on_node("2,1", "1"), 1);
  EXPECT_EQ(on_node("2(x3),1", "2"), 2);
  EXPECT_EQ(on_node("2(x3),1", "3"), 1);
  EXPECT_EQ(on_node("1,4(x2),2(x1048576)", "2"), 4);
  EXPECT_EQ(on_node("2,1", "7"), 2);                                      // another step's list
  EXPECT_EQ(local_ranks({{"SLURM_TASKS_PER_NODE", "1,3(x2)"}}, 100), 3);  // which node is not known
  EXPECT_EQ(local_ranks({{"SLURM_STEP_TASKS_PER_NODE", "1"}, {"SLURM_TASKS_PER_NODE", "4"}}, 100), 1);
  for (const char* list : {"x", "2,", ",2", "2(x", "2(x3", "2(3)", "0", "2(x0)", "-1", "2 ", "99999999999"}) {
    try {
      local_ranks({{"SLURM_TASKS_PER_NODE", list}}, 100);
      ADD_FAILURE() << list;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), std::string("[comm rendezvous] SLURM_TASKS_PER_NODE=") + list +
                                               " is not a list of tasks a node, as in 2(x3),1. Correct it.");
    }
  }
}

TEST(Rendezvous, TheRunIsWhatTheLauncherCallsIt) {
  const auto run = [](const Env& env) {
    return read_run([&](const char* name) {
      const auto found = env.find(name);
      return found == env.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(run({}), "");
  EXPECT_EQ(run({{"TORCHELASTIC_RUN_ID", "none"}}), "");
  EXPECT_EQ(run({{"TORCHELASTIC_RUN_ID", "none"}, {"SLURM_JOB_ID", "7"}}), "SLURM_JOB_ID=7");
  EXPECT_EQ(run({{"TORCHELASTIC_RUN_ID", "a"}, {"SLURM_JOB_ID", "7"}}), "TORCHELASTIC_RUN_ID=a");
  EXPECT_EQ(run({{"PMIX_NAMESPACE", "123"}}), "PMIX_NAMESPACE=123");
  EXPECT_EQ(run({{"SHOAL_RUN_ID", "mine"}, {"TORCHELASTIC_RUN_ID", "a"}}), "SHOAL_RUN_ID=mine");
}

}  // namespace
}  // namespace shoal
