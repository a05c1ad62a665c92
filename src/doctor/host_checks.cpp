// See host_checks.h.
#include "doctor/host_checks.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/text.h"
#include "kernels/isa.h"

namespace shoal::doctor {

namespace {

// Bytes a second that all cores together copy, read and write counted.
double copy_rate(uint64_t free_nbytes) {
  // A thread's part: larger than its share of the caches, and a small part of what is free.
  const uint64_t share = free_nbytes / 8 / std::max(1u, std::thread::hardware_concurrency());
  const auto nbytes = static_cast<size_t>(std::min<uint64_t>(uint64_t{64} << 20, share));
  constexpr int kRounds = 4;
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::vector<char>> from(cores), to(cores);
  const auto on_all = [&](const auto& work) {
    std::vector<std::thread> threads;
    for (unsigned core = 0; core < cores; ++core) threads.emplace_back([&, core] { work(core); });
    for (std::thread& thread : threads) thread.join();
  };
  on_all([&](unsigned core) {
    from[core].assign(nbytes, 1);
    to[core].assign(nbytes, 0);
  });
  const auto begin = std::chrono::steady_clock::now();
  on_all([&](unsigned core) {
    for (int round = 0; round < kRounds; ++round) std::memcpy(to[core].data(), from[core].data(), nbytes);
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return 2.0 * static_cast<double>(nbytes) * kRounds * cores / seconds;
}

Finding check_processor() {
  return {"processor", Health::good,
          fmt::format("{} cores, kernels for {}", std::thread::hardware_concurrency(),
                      kernels::isa_name(kernels::active_kernels().isa)),
          ""};
}

Finding check_io_uring() {
  std::array<char, 256> parameters{};  // larger than struct io_uring_params, all zero
  const long fd = ::syscall(SYS_io_uring_setup, 2, parameters.data());
  if (fd >= 0) ::close(static_cast<int>(fd));
  return judge_io_uring(fd >= 0 ? 0 : errno);
}

}  // namespace

Finding judge_locked_memory(uint64_t limit_nbytes, uint64_t total_nbytes, bool unlimited) {
  if (unlimited || limit_nbytes >= total_nbytes / 2) {
    return {"locked memory", Health::good, unlimited ? "no limit" : format_nbytes(limit_nbytes), ""};
  }
  return {
      "locked memory", Health::poor, fmt::format("at most {} a process", format_nbytes(limit_nbytes)),
      "Offload to the host pins its memory for the GPU, and states on disk are moved faster through buffers that are "
      "registered: ulimit -l unlimited."};
}

Finding judge_shared_memory(uint64_t nbytes, uint64_t total_nbytes) {
  if (nbytes >= total_nbytes / 4) return {"shared memory", Health::good, format_nbytes(nbytes) + " in /dev/shm", ""};
  return {"shared memory", Health::poor, fmt::format("{} in /dev/shm", format_nbytes(nbytes)),
          "Programs that share tensors through it (data loaders) may fail: docker run --shm-size=8g. Shoal's own ranks "
          "do not need it."};
}

Finding judge_io_uring(int error_number) {
  if (error_number == 0) return {"io_uring", Health::good, "can be used", ""};
  const bool forbidden = error_number == EPERM || error_number == EACCES;
  return {"io_uring", Health::poor, std::strerror(error_number),
          forbidden ? "The system forbids it (seccomp, or /proc/sys/kernel/io_uring_disabled). Offload to disk uses "
                      "threads instead."
                    : "This kernel has none. Offload to disk uses threads instead."};
}

std::vector<Finding> check_host() {
  std::vector<Finding> findings{check_processor()};
  struct sysinfo memory {};
  ::sysinfo(&memory);
  const uint64_t total = static_cast<uint64_t>(memory.totalram) * memory.mem_unit;
  const uint64_t available =
      static_cast<uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  findings.push_back({"memory", Health::good,
                      fmt::format("{}, {} free, copied at {:.0f} GB/s", format_nbytes(total), format_nbytes(available),
                                  copy_rate(available) * 1e-9),
                      ""});
  rlimit locked{};
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  findings.push_back(judge_locked_memory(locked.rlim_cur, total, locked.rlim_cur == RLIM_INFINITY));
  struct statvfs shared {};
  const uint64_t shared_nbytes = ::statvfs("/dev/shm", &shared) == 0 ? shared.f_blocks * shared.f_frsize : 0;
  findings.push_back(judge_shared_memory(shared_nbytes, total));
  findings.push_back(check_io_uring());
  return findings;
}

}  // namespace shoal::doctor
