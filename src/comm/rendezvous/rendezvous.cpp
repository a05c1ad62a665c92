// See rendezvous.h.
#include "comm/rendezvous/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "shoal/error.h"

namespace shoal {

namespace {

constexpr const char* kPlace = "comm rendezvous";
constexpr int kDefaultPort = 29500;  // torchrun's

class Environment {
 public:
  explicit Environment(const GetEnv& get_env) : get_env_(get_env) {}

  std::string text(const char* name) const {
    const char* value = get_env_(name);
    return value == nullptr ? "" : value;
  }
  bool has(const char* name) const { return !text(name).empty(); }

  void require(const std::vector<const char*>& names, std::string_view launcher) const {
    std::vector<std::string> missing;
    for (const char* name : names) {
      if (!has(name)) missing.emplace_back(name);
    }
    if (missing.empty()) return;
    throw Error(kPlace, fmt::format("{} {} not set, though others of {}'s variables are. Set {}, or start through a "
                                    "launcher.",
                                    join(missing, ", "), missing.size() == 1 ? "is" : "are", launcher,
                                    missing.size() == 1 ? "it" : "them"));
  }

  int64_t number(const char* name, int64_t low, int64_t high) const {
    const std::string value = text(name);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < low || number > high) {
      throw Error(kPlace, fmt::format("{}={} is not a number from {} to {}. Correct it.", name, value, low, high));
    }
    return number;
  }

  int integer(const char* name, int low, int high) const { return static_cast<int>(number(name, low, high)); }

 private:
  const GetEnv& get_env_;
};

constexpr int kMostRanks = 1 << 20;

void read_place(const Environment& env, Rendezvous& found, const char* rank, const char* world, const char* local) {
  found.world = env.integer(world, 1, kMostRanks);
  found.rank = env.integer(rank, 0, kMostRanks);
  if (found.rank >= found.world) {
    throw Error(kPlace, fmt::format("{}={} contradicts {}={}: ranks count from 0 to {}. Correct one of them.", rank,
                                    found.rank, world, found.world, found.world - 1));
  }
  found.local_rank = env.has(local) ? env.integer(local, 0, kMostRanks) : found.rank;
  if (found.local_rank > found.rank) {
    throw Error(kPlace, fmt::format("{}={} contradicts {}={}: the rank within a host cannot be the larger. Correct one "
                                    "of them.",
                                    local, found.local_rank, rank, found.rank));
  }
}

Rendezvous read_torchrun(const Environment& env) {
  env.require({"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}, "torchrun");
  Rendezvous found;
  read_place(env, found, "RANK", "WORLD_SIZE", "LOCAL_RANK");
  if (env.has("LOCAL_WORLD_SIZE") && env.has("LOCAL_RANK")) {
    const int local_world = env.integer("LOCAL_WORLD_SIZE", 1, kMostRanks);
    if (found.local_rank >= local_world || local_world > found.world) {
      throw Error(kPlace, fmt::format("LOCAL_WORLD_SIZE={} contradicts LOCAL_RANK={} or WORLD_SIZE={}. Correct one of "
                                      "them.",
                                      local_world, found.local_rank, found.world));
    }
  }
  // With torchrun inside mpirun the two count different things; without it they should count the same.
  if (!env.has("TORCHELASTIC_RUN_ID") && env.has("OMPI_COMM_WORLD_RANK") &&
      env.integer("OMPI_COMM_WORLD_RANK", 0, kMostRanks) != found.rank) {
    throw Error(kPlace, fmt::format("RANK={} contradicts OMPI_COMM_WORLD_RANK={}. Unset RANK to take mpirun's.",
                                    found.rank, env.text("OMPI_COMM_WORLD_RANK")));
  }
  found.store_is_served = env.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  found.attempt = env.text("TORCHELASTIC_RESTART_COUNT");
  found.host = env.text("MASTER_ADDR");
  found.port = env.integer("MASTER_PORT", 1, 65535);
  return found;
}

Rendezvous read_mpirun(const Environment& env) {
  env.require({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, "mpirun");
  Rendezvous found;
  read_place(env, found, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK");
  found.host = env.text("MASTER_ADDR");
  if (found.host.empty()) {
    if (env.text("OMPI_COMM_WORLD_LOCAL_SIZE") != env.text("OMPI_COMM_WORLD_SIZE")) {
      throw Error(kPlace,
                  "MASTER_ADDR is not set, and mpirun does not say where rank 0 is. "
                  "Start with mpirun -x MASTER_ADDR=<host of rank 0>.");
    }
    found.host = "127.0.0.1";
  }
  found.port = env.has("MASTER_PORT") ? env.integer("MASTER_PORT", 1, 65535) : kDefaultPort;
  return found;
}

Rendezvous read_srun(const Environment& env) {
  env.require({"SLURM_PROCID", "SLURM_NTASKS"}, "srun");
  Rendezvous found;
  read_place(env, found, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID");
  found.host = env.text("MASTER_ADDR");
  for (const char* list : {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"}) {
    if (found.host.empty()) found.host = first_host(env.text(list));
  }
  if (found.host.empty()) {
    throw Error(kPlace,
                "Neither MASTER_ADDR nor SLURM_NODELIST is set, so rank 0's host is not known. Set MASTER_ADDR.");
  }
  if (env.has("MASTER_PORT")) {
    found.port = env.integer("MASTER_PORT", 1, 65535);
  } else {
    // Jobs that share a host should not meet at one port.
    const int64_t job = env.has("SLURM_JOB_ID") ? env.number("SLURM_JOB_ID", 0, INT64_MAX) : 0;
    found.port = kDefaultPort + static_cast<int>(job % 10000);
  }
  return found;
}

// Slurm's tasks of each node.
//   list := item ("," item)*     item := tasks ["(x" nodes ")"]
// Nodes are not written out one by one: a list may speak of very many.
struct TaskList {
  struct Item {
    int tasks = 0, nodes = 1;
  };
  std::vector<Item> items;

  static std::optional<TaskList> parse(std::string_view text) {
    TaskList list;
    const auto take = [&text](int& number) {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (error != std::errc() || number < 1 || number > kMostRanks) return false;
      text.remove_prefix(static_cast<size_t>(end - text.data()));
      return true;
    };
    const auto skip = [&text](std::string_view word) {
      if (!text.starts_with(word)) return false;
      text.remove_prefix(word.size());
      return true;
    };
    do {
      Item item;
      if (!take(item.tasks)) return std::nullopt;
      if (skip("(x") && !(take(item.nodes) && skip(")"))) return std::nullopt;
      list.items.push_back(item);
    } while (skip(","));
    return text.empty() ? std::optional(list) : std::nullopt;
  }

  // Of that node; nothing where the list is shorter.
  std::optional<int> tasks_of(int64_t node) const {
    for (const Item& item : items) {
      if (node < item.nodes) return item.tasks;
      node -= item.nodes;
    }
    return std::nullopt;
  }
  int most() const {
    int most = 0;
    for (const Item& item : items) most = std::max(most, item.tasks);
    return most;
  }
};

}  // namespace

int read_local_ranks(const GetEnv& get_env, int world) {
  const Environment env(get_env);
  for (const char* name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}) {
    if (env.has(name)) return std::min(env.integer(name, 1, kMostRanks), world);
  }
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    if (!env.has(name)) continue;
    const auto list = TaskList::parse(env.text(name));
    if (!list) {
      throw Error(kPlace,
                  fmt::format("{}={} is not a list of tasks a node, as in 2(x3),1. Correct it.", name, env.text(name)));
    }
    std::optional<int> own;
    if (env.has("SLURM_NODEID")) own = list->tasks_of(env.number("SLURM_NODEID", 0, kMostRanks));
    return std::min(own.value_or(list->most()), world);
  }
  return world;
}

std::string read_run(const GetEnv& get_env) {
  const Environment env(get_env);
  // torchrun's is "none" where nobody named the run; the last is Open MPI's, one a call of mpirun.
  for (const char* name : {"SHOAL_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE"}) {
    if (env.has(name) && env.text(name) != "none") return fmt::format("{}={}", name, env.text(name));
  }
  return "";
}

std::string first_host(const std::string& nodelist) {
  std::string host;
  for (size_t i = 0; i < nodelist.size() && nodelist[i] != ','; ++i) {
    if (nodelist[i] != '[') {
      host += nodelist[i];
      continue;
    }
    const size_t end = nodelist.find(']', i);
    const std::string range = nodelist.substr(i + 1, end == std::string::npos ? end : end - i - 1);
    host += range.substr(0, range.find_first_of(",-"));
    if (end == std::string::npos) break;
    i = end;
  }
  return host;
}

Rendezvous read_rendezvous(const GetEnv& get_env) {
  const Environment env(get_env);
  if (env.has("RANK") || env.has("WORLD_SIZE")) return read_torchrun(env);
  if (env.has("OMPI_COMM_WORLD_RANK") || env.has("OMPI_COMM_WORLD_SIZE")) return read_mpirun(env);
  if (env.has("SLURM_PROCID") && env.has("SLURM_NTASKS")) return read_srun(env);
  throw Error(kPlace,
              "RANK and WORLD_SIZE are not set, nor mpirun's (OMPI_COMM_WORLD_RANK) or srun's (SLURM_PROCID, "
              "SLURM_NTASKS) variables. Start with torchrun, mpirun or srun.");
}

}  // namespace shoal
