// See disk_file.h.
#include "store/disk_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/wait_log.h"
#include "shoal/error.h"
#include "store/io_error.h"
#include "store/page_digests.h"
#include "store/preallocated_file.h"

namespace shoal {

namespace {

static_assert(PageDigests::kPageNbytes == DiskFile::kAlignment);

// How often a block may move nothing and be tried again, before that is an error.
constexpr int kIdleTries = 16;

size_t aligned_down(size_t nbytes) { return nbytes / DiskFile::kAlignment * DiskFile::kAlignment; }
size_t aligned_up(size_t nbytes) { return aligned_down(nbytes + DiskFile::kAlignment - 1); }

void check_aligned(const char* what, uint64_t value) {
  SHOAL_CHECK(value % DiskFile::kAlignment == 0, "{} {} is no multiple of {}", what, value, DiskFile::kAlignment);
}

}  // namespace

struct DiskFile::Tally {
  std::atomic<uint64_t> read_nbytes = 0;
  std::atomic<uint64_t> written_nbytes = 0;
  std::atomic<int64_t> waited_nanoseconds = 0;
};

struct DiskFile::Transfer::State {
  std::string place;
  std::shared_ptr<Tally> tally;
  mutable std::mutex mutex;
  std::condition_variable ended;
  size_t blocks_left = 0;
  std::string failure;          // of the block that lies first among those that failed; "" if none did
  uint64_t failure_offset = 0;  // of that block

  void end_block(uint64_t offset, std::string failed) {
    const std::lock_guard lock(mutex);
    if (!failed.empty() && (failure.empty() || offset < failure_offset)) {
      failure = std::move(failed);
      failure_offset = offset;
    }
    if (--blocks_left == 0) ended.notify_all();
  }
};

// A piece of a transfer, from its first request until all of it is moved.
struct DiskFile::Block {
  std::shared_ptr<Transfer::State> state;
  BlockIo* io = nullptr;
  BlockRequest::Kind kind = BlockRequest::Kind::read;
  uint64_t offset = 0;
  std::byte* memory = nullptr;
  size_t nbytes = 0;
  size_t moved_nbytes = 0;
  int idle_tries = 0;

  std::string named() const {
    return fmt::format("{} of {} bytes at {}", kind == BlockRequest::Kind::read ? "read" : "write", nbytes, offset);
  }
};

DiskFile::Transfer::Transfer(std::shared_ptr<State> state) : state_(std::move(state)) {}

DiskFile::Transfer::~Transfer() {
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  state_->ended.wait(lock, [this] { return state_->blocks_left == 0; });
}

DiskFile::Transfer& DiskFile::Transfer::operator=(Transfer&& other) noexcept {
  Transfer replaced(std::move(other));
  std::swap(state_, replaced.state_);
  return *this;
}

bool DiskFile::Transfer::done() const {
  if (!state_) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->blocks_left == 0;
}

void DiskFile::Transfer::wait() {
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  if (state_->blocks_left != 0) {
    const auto begun = std::chrono::steady_clock::now();
    state_->ended.wait(lock, [this] { return state_->blocks_left == 0; });
    const std::chrono::nanoseconds waited = std::chrono::steady_clock::now() - begun;
    state_->tally->waited_nanoseconds += waited.count();
    WaitLog::of_process().add_until_now("disk", waited);
  }
  if (!state_->failure.empty()) throw Error(state_->place, state_->failure);
}

DiskFile::DiskFile(Options options)
    : path_(options.folder / options.name),
      nbytes_(aligned_up(options.nbytes)),
      block_nbytes_(options.block_nbytes),
      tally_(std::make_shared<Tally>()) {
  check_aligned("a block of", block_nbytes_);
  SHOAL_CHECK(block_nbytes_ >= kAlignment && block_nbytes_ <= 1u << 30, "a block of {} bytes", block_nbytes_);
  SHOAL_CHECK_GE(options.queue_depth, 1);
  SHOAL_CHECK_GE(options.threads, 1);
  for (int i = 0; i < options.threads; ++i) {
    ios_.push_back(options.make_io ? options.make_io(options.queue_depth)
                                   : make_block_io(options.queue_depth, options.use_uring));
  }
  if (options.checksum) digests_ = std::make_unique<PageDigests>(nbytes_);
  PreallocatedFile file = make_preallocated_file(path_, nbytes_);  // last: what follows does not throw
  fd_ = file.fd;
  direct_ = file.direct;
  why_not_direct_ = std::move(file.why_not_direct);
}

DiskFile::~DiskFile() {
  ios_.clear();
  ::close(fd_);
  ::unlink(path_.c_str());
}

DiskFile::Transfer DiskFile::read(uint64_t offset, std::byte* memory, size_t nbytes) {
  return begin(BlockRequest::Kind::read, offset, memory, nbytes);
}
DiskFile::Transfer DiskFile::write(uint64_t offset, const std::byte* memory, size_t nbytes) {
  return begin(BlockRequest::Kind::write, offset, const_cast<std::byte*>(memory), nbytes);
}

DiskFile::Transfer DiskFile::begin(BlockRequest::Kind kind, uint64_t offset, std::byte* memory, size_t nbytes) {
  check_aligned("offset", offset);
  check_aligned("length", nbytes);
  check_aligned("memory at", reinterpret_cast<uintptr_t>(memory));
  SHOAL_CHECK_LE(offset, nbytes_);
  SHOAL_CHECK_LE(nbytes, nbytes_ - offset);
  if (nbytes == 0) return {};

  auto state = std::make_shared<Transfer::State>();
  state->place = disk_place(path_);
  state->tally = tally_;
  const Block whole{.state = state, .kind = kind, .offset = offset, .memory = memory, .nbytes = nbytes};
  // A write would make a file that was cut off long again, with zeros where data was: so look before each transfer.
  if (const std::string found = damage(); !found.empty()) {
    state->failure = fmt::format("{} failed: {}", whole.named(), found);
    return Transfer(std::move(state));
  }
  state->blocks_left = (nbytes + block_nbytes_ - 1) / block_nbytes_;
  for (size_t at = 0; at < nbytes; at += block_nbytes_) {
    auto block = std::make_shared<Block>(whole);
    block->io = ios_[next_io_++ % ios_.size()].get();
    block->offset += at;
    block->memory += at;
    block->nbytes = std::min(block_nbytes_, nbytes - at);
    start(std::move(block));
  }
  return Transfer(std::move(state));
}

void DiskFile::start(std::shared_ptr<Block> block) {
  BlockRequest request{.kind = block->kind,
                       .fd = fd_,
                       .offset = block->offset + block->moved_nbytes,
                       .memory = block->memory + block->moved_nbytes,
                       .nbytes = block->nbytes - block->moved_nbytes};
  BlockIo& io = *block->io;
  request.done = [this, block = std::move(block)](int64_t result) { go_on(block, result); };
  io.start(std::move(request));
}

void DiskFile::go_on(std::shared_ptr<Block> block, int64_t result) {
  const auto fail = [&](const std::string& words) {
    block->state->end_block(block->offset, fmt::format("{} failed: {}", block->named(), words));
  };
  const bool reads = block->kind == BlockRequest::Kind::read;
  if (result < 0 && result != -EINTR && result != -EAGAIN) {
    const int error_number = static_cast<int>(-result);
    return fail(fmt::format("{}.{}", words_of_errno(error_number), advice_for_errno(error_number)));
  }
  // What is left begins at a multiple of the alignment again, so some bytes may be moved twice.
  const size_t moved = aligned_down(static_cast<size_t>(std::max<int64_t>(result, 0)));
  block->moved_nbytes += moved;
  SHOAL_CHECK_LE(block->moved_nbytes, block->nbytes);
  if (block->moved_nbytes < block->nbytes) {
    const std::string found = reads ? damage() : "";
    if (!found.empty()) return fail(found);
    block->idle_tries = moved > 0 ? 0 : block->idle_tries + 1;
    if (block->idle_tries >= kIdleTries) {
      return fail(fmt::format("no bytes were moved in {} tries.{}", kIdleTries, advice_for_errno(EIO)));
    }
    return start(std::move(block));
  }
  (reads ? tally_->read_nbytes : tally_->written_nbytes) += block->nbytes;
  if (digests_ && !reads) digests_->keep(block->offset, block->memory, block->nbytes);
  if (digests_ && reads) {
    if (const auto page = digests_->first_difference(block->offset, block->memory, block->nbytes)) {
      return fail(fmt::format(
          "the page at {} (block {}) is not what was written there. The disk, or who else writes to it, damages data: "
          "resume from a checkpoint on another disk.",
          *page, *page / block_nbytes_));
    }
  }
  block->state->end_block(block->offset, "");
}

std::string DiskFile::damage() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return words_of_errno(errno) + ".";
  if (info.st_nlink == 0) {
    return fmt::format(
        "the file was removed: {}. Let nobody clean this folder while a run uses it; resume from a checkpoint.",
        words_of_errno(ENOENT));
  }
  if (static_cast<size_t>(info.st_size) < nbytes_) {
    return fmt::format(
        "the file was cut off at {} bytes of {}. Let nobody else write to this folder; resume from a checkpoint.",
        info.st_size, nbytes_);
  }
  return "";
}

bool DiskFile::register_memory(std::byte* memory, size_t nbytes) {
  bool registered = true;
  for (const auto& io : ios_) registered = io->register_memory(memory, nbytes) && registered;
  return registered;
}

DiskFile::Counters DiskFile::counters() const {
  return {.read_nbytes = tally_->read_nbytes,
          .written_nbytes = tally_->written_nbytes,
          .waited_seconds = static_cast<double>(tally_->waited_nanoseconds) * 1e-9};
}

std::string DiskFile::description() const {
  const std::string queues = ios_.size() > 1 ? fmt::format("{} x ", ios_.size()) : "";
  const std::string cache = direct_ ? "O_DIRECT" : fmt::format("through the page cache ({})", why_not_direct_);
  return fmt::format("{}{}, {}{}", queues, ios_.front()->description(), cache, digests_ ? ", checksums" : "");
}

}  // namespace shoal
