// See rank_checks.h.
#include "doctor/rank_checks.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>

#include "checkpoint/exchange.h"
#include "shoal/error.h"

namespace shoal::doctor {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5;
constexpr int kLinkRounds = 3;  // partners
constexpr size_t kLinkNbytes = size_t{8} << 20;
constexpr size_t kDiskNbytes = size_t{64} << 20, kDiskPiece = size_t{4} << 20;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double median_of(std::array<double, kRounds> values) {
  std::sort(values.begin(), values.end());
  return values[kRounds / 2];
}

// How often a second `work` is done, in rounds that all ranks begin together.
double times_a_second(Group& world, const RankCheckOptions& options, const std::function<void()>& work) {
  const auto await_device = [&] {
    if (options.device.is_cuda()) at::accelerator::synchronizeDevice(options.device.index());
  };
  work();
  await_device();
  std::array<double, kRounds> rates{};
  for (double& rate : rates) {
    world.barrier({"measure", "rank"}).wait();
    const Clock::time_point begin = Clock::now();
    int64_t times = 0;
    do {
      for (int i = 0; i < (options.device.is_cuda() ? 16 : 1); ++i, ++times) work();
      await_device();
    } while (seconds_since(begin) < options.seconds_a_round);
    rate = static_cast<double>(times) / seconds_since(begin);
  }
  return median_of(rates);
}

double products(Group& world, const RankCheckOptions& options) {
  const int64_t size = options.device.is_cuda() ? 4096 : 512;
  const auto dtype = options.device.is_cuda() ? at::kBFloat16 : at::kFloat;
  const at::Tensor a = at::ones({size, size}, at::TensorOptions(dtype).device(options.device));
  const at::Tensor b = a.clone();
  const auto flop = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  return flop * times_a_second(world, options, [&] { at::matmul(a, b); });
}

double copies(Group& world, const RankCheckOptions& options) {
  const int64_t nbytes = options.device.is_cuda() ? int64_t{512} << 20 : int64_t{64} << 20;
  const at::Tensor from = at::ones({nbytes}, at::TensorOptions(at::kByte).device(options.device));
  at::Tensor to = from.clone();
  return 2.0 * static_cast<double>(nbytes) * times_a_second(world, options, [&] { to.copy_(from); });
}

// Both ways with one partner after the other; the best, since a slow partner slows whoever measures with it. 0: it had
// none.
double link(Group& world, const std::vector<Round>& rounds) {
  double best = 0;
  std::vector<char> slices(2 * kLinkNbytes, 1), received(2 * kLinkNbytes);
  for (const Parts& parts : rounds) {
    const std::unique_ptr<Group> pair = world.split("link", parts);
    const auto exchange = [&] {
      pair->exchange({.subject = {"measure", "link"},
                      .slices = slices.data(),
                      .slice_nbytes = kLinkNbytes,
                      .received = received.data(),
                      .take = {},
                      .after = {},
                      .keep = {}})
          .wait();
    };
    if (pair->size() == 2) exchange();
    world.barrier({"measure", "link"}).wait();
    if (pair->size() < 2) continue;
    std::array<double, kRounds> rates{};
    for (double& rate : rates) {
      const Clock::time_point begin = Clock::now();
      exchange();
      rate = 2.0 * kLinkNbytes / seconds_since(begin);
    }
    best = std::max(best, median_of(rates));
  }
  return best;
}

// A file of our own in a folder, gone with this object.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& folder) : path_(folder + "/.shoal-doctor-XXXXXX") {
    fd_ = ::mkstemp(path_.data());
    if (fd_ < 0) throw Error("--disk", fmt::format("cannot write to {}: {}.", folder, std::strerror(errno)));
    ::unlink(path_.c_str());
  }
  ~ScratchFile() { ::close(fd_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // Bytes a second, the last one on the disk.
  double write(const std::vector<char>& piece) {
    const Clock::time_point begin = Clock::now();
    for (size_t at = 0; at < kDiskNbytes; at += piece.size()) {
      check(::pwrite(fd_, piece.data(), piece.size(), static_cast<off_t>(at)), piece.size());
    }
    if (::fsync(fd_) != 0) fail();
    return kDiskNbytes / seconds_since(begin);
  }
  // Not from the page cache, as far as the system gives it up.
  double read(std::vector<char>& piece) {
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
    const Clock::time_point begin = Clock::now();
    for (size_t at = 0; at < kDiskNbytes; at += piece.size()) {
      check(::pread(fd_, piece.data(), piece.size(), static_cast<off_t>(at)), piece.size());
    }
    return kDiskNbytes / seconds_since(begin);
  }

 private:
  [[noreturn]] void fail() const {
    throw Error("--disk", fmt::format("{} cannot be written or read: {}.", path_, std::strerror(errno)));
  }
  void check(ssize_t moved, size_t asked) const {
    if (moved < 0) fail();
    if (static_cast<size_t>(moved) != asked) {
      throw Error("--disk", fmt::format("{}: {} of {} bytes were moved. Look at the disk.", path_, moved, asked));
    }
  }

  std::string path_;
  int fd_ = -1;
};

void disk(Group& world, const std::string& folder, RankRates& rates) {
  checkpoint::act_together(world, {"measure", "disk"}, "--disk", [&] {
    ScratchFile file(folder);
    std::vector<char> piece(kDiskPiece, 1);
    rates.disk_write = file.write(piece);
    rates.disk_read = file.read(piece);
  });
}

std::vector<std::string> hosts_of(Group& world, std::string own) {
  if (own.empty()) {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    own = name.data();
  }
  return checkpoint::gather_texts(world, {"share", "hosts"}, own);
}

}  // namespace

CheckedRanks check_ranks(Group& world, const RankCheckOptions& options) {
  CheckedRanks checked;
  checked.hosts = hosts_of(world, options.host);
  const Pairings partners = pairings(checked.hosts, kLinkRounds);
  RankRates own;
  own.compute = products(world, options);
  own.memory = copies(world, options);
  own.link = link(world, partners.within);
  own.network = link(world, partners.between);
  if (!options.disk.empty()) disk(world, options.disk, own);
  checked.rates.resize(static_cast<size_t>(world.size()));
  world.all_gather({{"share", "rates"}, &own, checked.rates.data(), sizeof(RankRates), nullptr}).wait();
  return checked;
}

}  // namespace shoal::doctor
