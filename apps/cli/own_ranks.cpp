// See own_ranks.h.
#include "cli/own_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/verbs.h"
#include "shoal/group.h"

namespace shoal::cli {

bool under_launcher(int ranks) {
  if (std::getenv("RANK") != nullptr || std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) return true;
  if (std::getenv("SLURM_PROCID") == nullptr) return false;
  return ranks <= 1 || world_size_of_environment() > 1;
}

int ranks_asked(int ranks) {
  if (!under_launcher(ranks)) return std::max(ranks, 1);
  const int world = world_size_of_environment();
  if (ranks == 0 || ranks == world) return world;
  throw UsageError("--ranks",
                   fmt::format("{} contradicts the launcher, which started {}. Leave it out.", ranks, world));
}

std::vector<std::string> own_command() {
  std::vector<std::string> words;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  words.at(0) = std::filesystem::read_symlink("/proc/self/exe").string();
  return words;
}

}  // namespace shoal::cli
