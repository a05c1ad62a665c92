// The environment of one rank: torchrun's variables over those of the launcher. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace shoal::launch {

struct RankPlace {
  int rank = 0;
  int ranks = 1;
  int port = 0;
  int threads = 1;
};

// "NAME=value" texts. Variables by which another launcher counts (TORCHELASTIC_*, OMPI_COMM_WORLD_*) are left out of
// the inherited ones: they would contradict ours. `more` comes before both.
std::vector<std::string> rank_environment(const std::vector<std::string>& inherited, const RankPlace& place,
                                          const std::map<std::string, std::string>& more = {});

// How many threads each rank computes with: what was asked for, else what OMP_NUM_THREADS says, else an equal part of
// the cores. Throws Error when OMP_NUM_THREADS is not a number.
int threads_of_rank(int asked, const char* omp_num_threads, int cores, int ranks);

}  // namespace shoal::launch
