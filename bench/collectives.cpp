// GB/s of reduce_scatter and all_gather between 2 processes, over shared memory and over Gloo, by the size of the whole
// buffer. Starts itself again as the ranks:   bench_collectives [megabytes ...]
// With a launcher's variables it is one rank of that many: bench/hosts.py starts it so on several hosts.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "comm/group/full_group.h"
#include "device/slab.h"
#include "shoal/group.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kWorld = 2;
constexpr int kRounds = 12;

// The fastest of some rounds, in seconds; a barrier before each lets the ranks begin together.
template <class Call>
double fastest(shoal::Group& group, const Call& call) {
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    group.barrier({"begin", "round"}).wait();
    const auto start = Clock::now();
    call();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

void measure(shoal::Group& group, int64_t megabytes) {
  const size_t nbytes = static_cast<size_t>(megabytes) << 20;
  const auto world = static_cast<size_t>(group.size());
  const size_t shard_nbytes = nbytes / world;
  auto ledger = std::make_shared<shoal::Ledger>();
  auto whole = full(group).allocate(nbytes, ledger, shoal::MemoryKind::reduce_slots);
  std::fill_n(reinterpret_cast<float*>(whole->data()), nbytes / 4, 1.0f);
  std::byte* own = whole->data() + shard_nbytes * static_cast<size_t>(group.rank());
  shoal::ReduceScatter reduce;
  reduce.subject = {"reduce", "bench"};
  reduce.whole = whole->data();
  reduce.shard = own;
  reduce.shard_numel = static_cast<int64_t>(shard_nbytes / 4);
  reduce.post = 1.0f / static_cast<float>(world);
  const double reduce_s = fastest(group, [&] { group.reduce_scatter(reduce).wait(); });
  const shoal::AllGather gather{{"gather", "bench"}, own, whole->data(), shard_nbytes, nullptr};
  const double gather_s = fastest(group, [&] { group.all_gather(gather).wait(); });
  if (group.rank() != 0) return;
  const double gigabytes = static_cast<double>(nbytes) / 1e9;
  fmt::print("{:<14} {:>5} MiB   reduce_scatter {:>9.4f} ms {:>6.2f} GB/s   all_gather {:>9.4f} ms {:>6.2f} GB/s\n",
             group.transport_name(), megabytes, reduce_s * 1e3, gigabytes / reduce_s, gather_s * 1e3,
             gigabytes / gather_s);
}

int run_rank(int argc, char** argv) {
  auto group = shoal::make_process_group();
  if (group->rank() == 0) {
    const double latency = fastest(*group, [&] { group->barrier({"latency", ""}).wait(); });
    fmt::print("{:<14} barrier {:.0f} us\n", group->transport_name(), latency * 1e6);
  } else {
    fastest(*group, [&] { group->barrier({"latency", ""}).wait(); });
  }
  std::vector<int64_t> sizes{8, 32, 128};
  if (argc > 1) sizes.assign({});
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoll(argv[i]));
  for (const int64_t megabytes : sizes) measure(*group, megabytes);
  group->barrier({"end", ""}).wait();
  return 0;
}

int start_ranks(const char* transport, char** argv) {
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kWorld; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      setenv("RANK", std::to_string(rank).c_str(), 1);
      setenv("WORLD_SIZE", std::to_string(kWorld).c_str(), 1);
      setenv("MASTER_ADDR", "127.0.0.1", 1);
      setenv("MASTER_PORT", "29517", 0);
      setenv("OMP_NUM_THREADS", "1", 1);
      setenv("SHOAL_TRANSPORT", transport, 1);
      execv("/proc/self/exe", argv);
      _exit(127);
    }
    ranks.push_back(pid);
  }
  int failed = 0;
  for (const pid_t pid : ranks) {
    int status = 0;
    waitpid(pid, &status, 0);
    failed += status != 0;
  }
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  if (std::getenv("RANK") != nullptr) return run_rank(argc, argv);
  return start_ranks("shm", argv) + start_ranks("gloo", argv) == 0 ? 0 : 1;
}
