// See rank_environment.h.
#include "launch/rank_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "shoal/error.h"

namespace shoal::launch {

namespace {

bool is_of_another_launcher(std::string_view name) {
  return name.starts_with("TORCHELASTIC_") || name.starts_with("OMPI_COMM_WORLD_");
}

}  // namespace

std::vector<std::string> rank_environment(const std::vector<std::string>& inherited, const RankPlace& place,
                                          const std::map<std::string, std::string>& more) {
  const std::string rank = std::to_string(place.rank);
  const std::string ranks = std::to_string(place.ranks);
  std::map<std::string, std::string> variables = more;
  variables.insert({{"RANK", rank},
                    {"LOCAL_RANK", rank},
                    {"WORLD_SIZE", ranks},
                    {"LOCAL_WORLD_SIZE", ranks},
                    {"MASTER_ADDR", "127.0.0.1"},
                    {"MASTER_PORT", std::to_string(place.port)},
                    {"OMP_NUM_THREADS", std::to_string(place.threads)}});
  std::vector<std::string> environment;
  for (const std::string& entry : inherited) {
    const std::string name = entry.substr(0, entry.find('='));
    if (variables.count(name) == 0 && !is_of_another_launcher(name)) environment.push_back(entry);
  }
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  return environment;
}

int threads_of_rank(int asked, const char* omp_num_threads, int cores, int ranks) {
  if (asked > 0) return asked;
  const std::string_view text = omp_num_threads == nullptr ? "" : omp_num_threads;
  if (text.empty()) return std::max(1, cores / ranks);
  int threads = 0;
  // OpenMP allows a list, one number a level of nesting; the first is the one that counts here.
  const std::string_view first = text.substr(0, text.find(','));
  const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), threads);
  if (error != std::errc() || end != first.data() + first.size() || threads < 1) {
    throw Error("environment OMP_NUM_THREADS", fmt::format("\"{}\" is not a number of threads. Correct it.", text));
  }
  return threads;
}

}  // namespace shoal::launch
