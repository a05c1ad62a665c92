// Passes over a DiskFile, on demand of disk_dd.py: reads words from standard input (write, read, both), moves the whole
// file that way, and prints the seconds. "both" reads one half while it writes the other.
//   bench_disk --folder DIR --mib N [--block-kib 1024] [--depth 8] [--threads 1] [--io uring|threads] [--transfer-mib
//   64]
//              [--checksum] [--register]
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "device/slab.h"
#include "shoal/error.h"
#include "store/disk_file.h"
#include "store/scratch_folder.h"

namespace {

using shoal::DiskFile;
constexpr size_t kMiB = 1u << 20;

struct Settings {
  std::string folder = ".";
  size_t transfer_nbytes = 64 * kMiB;
  bool registered = false;
  DiskFile::Options file{.name = "bench", .nbytes = 1024 * kMiB};
};

Settings settings_of(int argc, char** argv) {
  Settings settings;
  DiskFile::Options& file = settings.file;
  const std::map<std::string, std::function<void()>> flags{
      {"--checksum", [&] { file.checksum = true; }},
      {"--register", [&] { settings.registered = true; }},
  };
  const std::map<std::string, std::function<void(const std::string&)>> values{
      {"--folder", [&](const std::string& value) { settings.folder = value; }},
      {"--mib", [&](const std::string& value) { file.nbytes = std::stoull(value) * kMiB; }},
      {"--transfer-mib", [&](const std::string& value) { settings.transfer_nbytes = std::stoull(value) * kMiB; }},
      {"--block-kib", [&](const std::string& value) { file.block_nbytes = std::stoull(value) * 1024; }},
      {"--depth", [&](const std::string& value) { file.queue_depth = std::stoi(value); }},
      {"--threads", [&](const std::string& value) { file.threads = std::stoi(value); }},
      {"--io", [&](const std::string& value) { file.use_uring = value == "uring"; }},
  };
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    if (const auto flag = flags.find(key); flag != flags.end()) {
      flag->second();
    } else if (const auto value = values.find(key); value != values.end() && i + 1 < argc) {
      value->second(argv[++i]);
    } else {
      throw shoal::Error("bench disk", fmt::format("{} is not an option, or lacks its value.", key));
    }
  }
  return settings;
}

// Moves [begin, end) through two pieces of memory, so that one transfer is always behind the other.
class Pass {
 public:
  Pass(DiskFile& file, bool writes, size_t begin, size_t end, std::byte* memory, size_t transfer_nbytes)
      : file_(file), writes_(writes), at_(begin), end_(end), memory_(memory), transfer_nbytes_(transfer_nbytes) {}

  bool step() {
    if (at_ == end_) return false;
    const size_t turn = turn_++ % transfers_.size();
    transfers_[turn].wait();
    const size_t nbytes = std::min(transfer_nbytes_, end_ - at_);
    std::byte* memory = memory_ + turn * transfer_nbytes_;
    transfers_[turn] = writes_ ? file_.write(at_, memory, nbytes) : file_.read(at_, memory, nbytes);
    at_ += nbytes;
    return true;
  }
  void finish() {
    for (DiskFile::Transfer& transfer : transfers_) transfer.wait();
  }

 private:
  DiskFile& file_;
  const bool writes_;
  size_t at_;
  const size_t end_;
  std::byte* const memory_;
  const size_t transfer_nbytes_;
  size_t turn_ = 0;
  std::array<DiskFile::Transfer, 2> transfers_;
};

double seconds_of(const std::string& word, DiskFile& file, std::byte* memory, size_t transfer_nbytes) {
  const size_t half = word == "both" ? file.nbytes() / 2 : file.nbytes();
  const auto begun = std::chrono::steady_clock::now();
  Pass first(file, word == "write", 0, half, memory, transfer_nbytes);
  Pass second(file, true, half, file.nbytes(), memory + 2 * transfer_nbytes, transfer_nbytes);
  bool more = true;
  while (more) {
    more = first.step();
    more = second.step() || more;
  }
  first.finish();
  second.finish();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

int run(int argc, char** argv) {
  Settings settings = settings_of(argc, argv);
  const shoal::ScratchFolder folder(settings.folder);
  const auto memory = shoal::Slab::create(4 * settings.transfer_nbytes, shoal::Slab::Backing::anonymous,
                                          std::make_shared<shoal::Ledger>(), shoal::MemoryKind::staging);
  std::memset(memory->data(), 0x5a, memory->nbytes());
  settings.file.folder = folder.path();
  DiskFile file(settings.file);
  const bool registered = settings.registered && file.register_memory(memory->data(), memory->nbytes());
  fmt::print("{}{}\n", file.description(), registered ? ", registered memory" : "");
  std::fflush(stdout);
  for (std::string word; std::cin >> word;) {
    fmt::print("{:.6f}\n", seconds_of(word, file, memory->data(), settings.transfer_nbytes));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
