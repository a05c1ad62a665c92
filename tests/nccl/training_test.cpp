// The engine over NCCL between processes that share one GPU: stages, accumulation, recompute, offload of states,
// weights and gradients, updates by the host, and two engines in one process give the bits (losses, norms, weights) of
// the same ranks whose bytes go through the hosts, and of ranks as threads. Prints a table of digests.
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

std::vector<Trial> trials() {
  std::vector<Trial> all;
  const auto add = [&](const std::string& name, int stage, Precision precision, auto change) {
    RunOptions options;
    options.stage = stage;
    options.precision = precision;
    options.steps = 10;  // the overflow, and steps after it
    options.device = gpu();
    options.reduce_bucket = 500'000'000;  // a piece takes milliseconds where ranks take turns on the GPU
    change(options);
    all.push_back({fmt::format("{}, stage {}", name, stage), options});
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
  constexpr int kGroup = 2;
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

int train_as_process() {
  const auto world = join_world();
  say("transport: " + gpu_transport(*world));
  for (const Trial& trial : trials()) {
    say(line_of(trial.name, world->rank(), train(*world, trial.options).hash()));
  }
  say(line_of("two engines", world->rank(), train_two_engines(*world)));
  return 0;
}

int train_as_threads() {
  const int world = std::stoi(std::getenv("TEST_WORLD"));
  say("transport: threads");
  for (const Trial& trial : trials()) {
    const std::vector<RunResult> results = train_on_threads(world, trial.options);
    for (int rank = 0; rank < world; ++rank) {
      say(line_of(trial.name, rank, results[static_cast<size_t>(rank)].hash()));
    }
  }
  const std::function<uint64_t(Group&)> both = [](Group& group) { return train_two_engines(group); };
  const std::vector<uint64_t> bits = on_threads<uint64_t>(world, both);
  for (int rank = 0; rank < world; ++rank) say(line_of("two engines", rank, bits[static_cast<size_t>(rank)]));
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

class NcclTraining : public ::testing::TestWithParam<int> {};

TEST_P(NcclTraining, HasTheBitsOfRanksThatGoThroughTheHostsAndOfThreads) {
  SHOAL_NEEDS_GPU();
  const int world = GetParam();
  Ranks over_nccl(gpu_ranks(world, "process", "nccl"));  // side by side
  Ranks through_hosts(gpu_ranks(world, "process", "staged"));
  Ranks as_threads(gpu_ranks(1, "threads", "staged", {{"TEST_WORLD", std::to_string(world)}}));
  const auto nccl = digests(over_nccl.wait(), "GPU, NCCL");
  const auto staged = digests(through_hosts.wait(), "GPU, through shared memory");
  const auto threads = digests(as_threads.wait(), "threads");
  const auto digest_in = [](const std::map<std::string, std::string>& all, const std::string& key) {
    const auto found = all.find(key);
    return found == all.end() ? "missing" : found->second;
  };
  std::vector<std::string> names;
  for (const Trial& trial : trials()) names.push_back(trial.name);
  names.emplace_back("two engines");
  fmt::print("{:<52} {:>16} {:>16} {:>16}\n", fmt::format("{} ranks on one GPU, digest of rank 0", world), "NCCL",
             "through hosts", "threads");
  for (const std::string& name : names) {
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

INSTANTIATE_TEST_SUITE_P(Worlds, NcclTraining, ::testing::Values(2, 4),
                         [](const auto& info) { return "world" + std::to_string(info.param); });

}  // namespace
}  // namespace shoal::testing

int main(int argc, char** argv) {
  using namespace shoal::testing;
  return rank_main(argc, argv, {{"process", train_as_process}, {"threads", train_as_threads}});
}
