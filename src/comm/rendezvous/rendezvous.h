// Where a process stands among the ranks and where they meet, read from the environment of torchrun, mpirun or srun.
// Pure: the environment is handed in.
#pragma once

#include <functional>
#include <string>

namespace shoal {

struct Rendezvous {
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  std::string host;
  int port = 0;
  bool store_is_served = false;  // torchrun serves the store at host:port; otherwise rank 0 does
  std::string attempt;           // tells apart the starts of an elastic run, which share torchrun's store
};

using GetEnv = std::function<const char*(const char* name)>;

// Throws shoal::Error that names the variables that are missing, wrong or contradict each other.
Rendezvous read_rendezvous(const GetEnv& get_env);

// How many of the ranks are on this host, as the launcher says; `world` where it says nothing. Of Slurm's list of tasks
// a node, "2(x3),1", the number of this node counts, or the largest where it is not known which node this is.
int read_local_ranks(const GetEnv& get_env, int world);

// What tells this run from others, as the launcher says: "SLURM_JOB_ID=17"; "" where nobody says. SHOAL_RUN_ID comes
// before all.
std::string read_run(const GetEnv& get_env);

// The first host of Slurm's list: "node[003-005,7],gpu1" -> "node003".
std::string first_host(const std::string& nodelist);

}  // namespace shoal
