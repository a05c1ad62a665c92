// The engine over NCCL between processes that share one GPU: stages, accumulation, recompute, offload of states,
// weights and gradients, updates by the host, and two engines in one process give the bits (losses, norms, weights) of
// the same ranks whose bytes go through the hosts, and of ranks as threads. So do runs whose weights and gradients
// travel in few bits (ZeRO++), on two hosts in name. Prints a table of digests.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/text.h"
#include "nccl/nccl_ranks.h"
#include "training/matrix_engine.h"
#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

struct Trial {
  std::string name;
  RunOptions options;
};

using Trials = std::vector<Trial>;

template <class Change>
void add_to(Trials& all, const std::string& name, int stage, Precision precision, const Change& change) {
  RunOptions options;
  options.stage = stage;
  options.precision = precision;
  options.steps = 10;  // the overflow, and steps after it
  options.device = gpu();
  options.reduce_bucket = 500'000'000;  // a piece takes milliseconds where ranks take turns on the GPU
  change(options);
  all.push_back({fmt::format("{}, stage {}", name, stage), options});
}

constexpr int kGroup = 2;

Trials trials() {
  Trials all;
  const auto add = [&](const std::string& name, int stage, Precision precision, const auto& change) {
    add_to(all, name, stage, precision, change);
  };
  for (int stage = 0; stage <= 3; ++stage) {
    add("fp32", stage, Precision::fp32, [](RunOptions&) {});
    add("bf16, 3 micro-steps", stage, Precision::bf16, [](RunOptions& o) { o.accumulation = 3; });
  }
  add("bf16, many pieces", 2, Precision::bf16, [](RunOptions& o) { o.reduce_bucket = 700; });
  add("fp16, recompute", 3, Precision::fp16, [](RunOptions& o) { o.recompute = true; });
  add("no overlap", 3, Precision::bf16, [](RunOptions& o) { o.overlap = false; });
  for (const int stage : {2, 3}) {
    add("states on the host", stage, Precision::bf16, [](RunOptions& o) { o.offload.tier = Tier::host; });
    add("states on the host, which updates", stage, Precision::bf16, [](RunOptions& o) {
      o.offload.tier = Tier::host;
      o.offload_update = OffloadUpdate::host;
      o.offload_gradients = OffloadGradients::off;
    });
    add("gradients on the host too, 2 micro-steps", stage, Precision::bf16, [](RunOptions& o) {
      o.offload.tier = Tier::host;
      o.offload_update = OffloadUpdate::host;
      o.offload_gradients = OffloadGradients::on;
      o.accumulation = 2;
    });
  }
  add("weights on the host", 3, Precision::bf16, [](RunOptions& o) { o.weights_tier = Tier::host; });
  add("all on the host, recompute", 3, Precision::bf16, [](RunOptions& o) {
    o.weights_tier = o.offload.tier = Tier::host;
    o.offload_update = OffloadUpdate::host;
    o.recompute = true;
  });
  // Groups of ranks: of 4 there are two, of 2 it is full sharding.
  for (const int stage : {1, 3}) {
    add("groups of ranks", stage, Precision::bf16, [](RunOptions& o) { o.shard_size = kGroup, o.accumulation = 2; });
  }
  add("groups of ranks, states on the host", 3, Precision::bf16, [](RunOptions& o) {
    o.shard_size = kGroup;
    o.offload.tier = Tier::host;
    o.offload_update = OffloadUpdate::host;
    o.offload_gradients = OffloadGradients::on;
  });
  add("sums of groups", 3, Precision::fp32, [](RunOptions& o) { o.shard_size = o.fold_group = kGroup; });
  add("a second copy", 3, Precision::bf16, [](RunOptions& o) { o.second_copy = kGroup, o.accumulation = 2; });
  return all;
}

// Half of the ranks on either host: SHOAL_HOSTS of processes, RunOptions::hosts of threads.
std::vector<int> two_hosts(int world) {
  std::vector<int> hosts;
  for (int rank = 0; rank < world; ++rank) hosts.push_back(2 * rank / world);
  return hosts;
}

Trials quantized_trials() {
  Trials all;
  const auto add = [&](const std::string& name, int stage, const auto& change) {
    add_to(all, name, stage, Precision::bf16, [&](RunOptions& options) {
      options.persistence_threshold = 20;  // few stay whole
      change(options);
    });
  };
  const auto in_int8 = [](RunOptions& o) { o.quantized_weights = true; };
  add("weights in int8", 3, in_int8);
  add("weights in int8, second copy, 2 micro-steps", 3, [](RunOptions& o) {
    o.quantized_weights = true;
    o.second_copy = kGroup;
    o.accumulation = 2;
  });
  add("weights in int8, from the host", 3, [](RunOptions& o) {
    o.quantized_weights = true;
    o.weights_tier = Tier::host;
  });
  for (const int stage : {2, 3}) {
    for (const int bits : {4, 8}) {
      add(fmt::format("gradients in int{}", bits), stage, [&](RunOptions& o) { o.quantized_gradient_bits = bits; });
    }
    add("gradients in int4, error feedback", stage, [](RunOptions& o) {
      o.quantized_gradient_bits = 4;
      o.error_feedback = 0.8;
    });
  }
  add("all in few bits, 2 micro-steps", 3, [](RunOptions& o) {
    o.quantized_weights = true;
    o.quantized_gradient_bits = 4;
    o.error_feedback = 0.8;
    o.accumulation = 2;
    o.offload.tier = Tier::host;
    o.offload_update = OffloadUpdate::host;
    o.offload_gradients = OffloadGradients::on;
  });
  return all;
}

// Two engines of one process, a step of each in turn.
uint64_t train_two_engines(Group& world) {
  RunOptions first, second;
  first.stage = 3;
  second.stage = 2;
  second.precision = Precision::bf16;
  first.device = second.device = gpu();
  EngineOptions options = two_groups();
  options.device = gpu();
  MatrixEngine one(world, first, options), two(world, second, options);
  for (int64_t step = 0; step < 6; ++step) {
    one.train_step(step);
    two.train_step(step);
  }
  return hash_text(one.weights(), hash_text(two.weights()));
}

std::string line_of(const std::string& name, int rank, uint64_t bits) {
  return fmt::format("rank {}: {}: {:016x}", rank, name, bits);
}

std::unique_ptr<Group> play_as_process(const Trials& all) {
  auto world = join_world();
  say("transport: " + gpu_transport(*world));
  for (const Trial& trial : all) {
    say(line_of(trial.name, world->rank(), train(*world, trial.options).hash()));
  }
  return world;
}

int world_of_threads() { return std::stoi(std::getenv("TEST_WORLD")); }

void play_as_threads(const Trials& all) {
  const int world = world_of_threads();
  say("transport: threads");
  for (const Trial& trial : all) {
    const std::vector<RunResult> results = train_on_threads(world, trial.options);
    for (int rank = 0; rank < world; ++rank) {
      say(line_of(trial.name, rank, results[static_cast<size_t>(rank)].hash()));
    }
  }
}

int train_as_process() {
  const auto world = play_as_process(trials());
  say(line_of("two engines", world->rank(), train_two_engines(*world)));
  return 0;
}

int train_as_threads() {
  const int world = world_of_threads();
  play_as_threads(trials());
  const std::function<uint64_t(Group&)> both = [](Group& group) { return train_two_engines(group); };
  const std::vector<uint64_t> bits = on_threads<uint64_t>(world, both);
  for (int rank = 0; rank < world; ++rank) say(line_of("two engines", rank, bits[static_cast<size_t>(rank)]));
  return 0;
}

int train_quantized_as_process() {
  play_as_process(quantized_trials());
  return 0;
}

int train_quantized_as_threads() {
  Trials all = quantized_trials();
  for (Trial& trial : all) trial.options.hosts = two_hosts(world_of_threads());
  play_as_threads(all);
  return 0;
}

// Digest by "rank r: trial".
std::map<std::string, std::string> digests(const std::vector<Outcome>& outcomes, const std::string& transport) {
  std::map<std::string, std::string> found;
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, ::testing::HasSubstr("transport: " + transport));
    for (const std::string& line : lines_said(outcome.output)) {
      if (line.starts_with("rank ")) found[line.substr(0, line.rfind(": "))] = line.substr(line.rfind(": ") + 2);
    }
  }
  return found;
}

// What the trials are called, how they are played, and with which environment as processes.
struct Play {
  std::vector<std::string> names;
  std::string as_process, as_threads;
  std::map<std::string, std::string> env;
};

void expect_same_everywhere(int world, const Play& play) {
  Ranks over_nccl(gpu_ranks(world, play.as_process, "nccl", play.env));  // side by side
  Ranks through_hosts(gpu_ranks(world, play.as_process, "staged", play.env));
  Ranks as_threads(gpu_ranks(1, play.as_threads, "staged", {{"TEST_WORLD", std::to_string(world)}}));
  const auto nccl = digests(over_nccl.wait(), "GPU, NCCL");
  const auto staged = digests(through_hosts.wait(), "GPU, through shared memory");
  const auto threads = digests(as_threads.wait(), "threads");
  const auto digest_in = [](const std::map<std::string, std::string>& all, const std::string& key) {
    const auto found = all.find(key);
    return found == all.end() ? "missing" : found->second;
  };
  fmt::print("{:<52} {:>16} {:>16} {:>16}\n", fmt::format("{} ranks on one GPU, digest of rank 0", world), "NCCL",
             "through hosts", "threads");
  for (const std::string& name : play.names) {
    for (int rank = 0; rank < world; ++rank) {
      const std::string key = fmt::format("rank {}: {}", rank, name);
      const std::string of_nccl = digest_in(nccl, key);
      EXPECT_NE(of_nccl, "missing") << key;
      EXPECT_EQ(of_nccl, digest_in(staged, key)) << key;
      EXPECT_EQ(of_nccl, digest_in(threads, key)) << key;
      if (rank == 0)
        fmt::print("{:<52} {:>16} {:>16} {:>16}\n", name, of_nccl, digest_in(staged, key), digest_in(threads, key));
    }
  }
}

std::vector<std::string> names_of(const Trials& all) {
  std::vector<std::string> names;
  for (const Trial& trial : all) names.push_back(trial.name);
  return names;
}

class NcclTraining : public ::testing::TestWithParam<int> {};

TEST_P(NcclTraining, HasTheBitsOfRanksThatGoThroughTheHostsAndOfThreads) {
  SHOAL_NEEDS_GPU();
  std::vector<std::string> names = names_of(trials());
  names.emplace_back("two engines");
  expect_same_everywhere(GetParam(), {names, "process", "threads", {}});
}

TEST_P(NcclTraining, InFewBitsHasTheBitsOfRanksThatGoThroughTheHostsAndOfThreads) {
  SHOAL_NEEDS_GPU();
  std::string hosts;
  for (const int host : two_hosts(GetParam())) hosts += (hosts.empty() ? "" : ",") + std::to_string(host);
  expect_same_everywhere(
      GetParam(), {names_of(quantized_trials()), "quantized_process", "quantized_threads", {{"SHOAL_HOSTS", hosts}}});
}

INSTANTIATE_TEST_SUITE_P(Worlds, NcclTraining, ::testing::Values(2, 4),
                         [](const auto& info) { return "world" + std::to_string(info.param); });

}  // namespace
}  // namespace shoal::testing

int main(int argc, char** argv) {
  using namespace shoal::testing;
  return rank_main(argc, argv,
                   {{"process", train_as_process},
                    {"threads", train_as_threads},
                    {"quantized_process", train_quantized_as_process},
                    {"quantized_threads", train_quantized_as_threads}});
}
