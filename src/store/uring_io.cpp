// See block_io.h: io_uring. One thread gives requests to the ring and takes completions from it; it sleeps in the
// kernel until either a request is done or start() writes to an eventfd that the ring reads.
#include <fmt/format.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "store/block_io.h"
#include "store/io_error.h"

namespace shoal {

namespace {

constexpr unsigned kMemorySlots = 256;          // of registered memory, each at most as long as the kernel allows
constexpr size_t kMemorySlotNbytes = 1u << 30;  // that is 1 GiB

// 0 or an errno: whether the ring carries out what we ask of it. Some sandboxes give a ring and then refuse its calls.
int try_ring(io_uring& ring) {
  io_uring_probe* probe = io_uring_get_probe_ring(&ring);
  if (probe == nullptr) return EOPNOTSUPP;
  const bool known =
      io_uring_opcode_supported(probe, IORING_OP_READ) && io_uring_opcode_supported(probe, IORING_OP_WRITE);
  io_uring_free_probe(probe);
  if (!known) return EOPNOTSUPP;
  io_uring_prep_nop(io_uring_get_sqe(&ring));
  if (const int taken = io_uring_submit(&ring); taken != 1) return taken < 0 ? -taken : EIO;
  io_uring_cqe* completion = nullptr;
  if (const int failed = io_uring_wait_cqe(&ring, &completion); failed != 0) return -failed;
  io_uring_cqe_seen(&ring, completion);
  return 0;
}

class UringIo final : public BlockIo {
 public:
  // Takes the ring and the eventfd over. The ring has room for depth + 1.
  UringIo(const io_uring& ring, int wake_fd, int depth) : ring_(ring), wake_fd_(wake_fd), depth_(depth) {
    has_slots_ = io_uring_register_buffers_sparse(&ring_, kMemorySlots) == 0;
    thread_ = std::thread([this] { serve(); });
  }
  ~UringIo() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake();
    thread_.join();
    io_uring_queue_exit(&ring_);
    ::close(wake_fd_);
  }

  void start(BlockRequest request) override {
    bool was_empty = false;
    {
      const std::lock_guard lock(mutex_);
      was_empty = queue_.empty();
      queue_.push_back(std::move(request));
    }
    if (was_empty) wake();  // else the thread was woken already, or looks here after the next completion
  }

  bool register_memory(std::byte* memory, size_t nbytes) override {
    const std::lock_guard lock(mutex_);
    for (size_t at = 0; at < nbytes; at += kMemorySlotNbytes) {
      const auto slot = static_cast<unsigned>(memory_.size());
      if (!has_slots_ || slot == kMemorySlots) return false;
      const iovec piece{memory + at, std::min(kMemorySlotNbytes, nbytes - at)};
      if (io_uring_register_buffers_update_tag(&ring_, slot, &piece, nullptr, 1) != 1) return false;
      memory_.push_back({memory + at, piece.iov_len});
    }
    return true;
  }

  std::string description() const override { return fmt::format("io_uring, {} in flight", depth_); }

 private:
  struct Memory {
    std::byte* begin = nullptr;
    size_t nbytes = 0;
  };

  void wake() const {
    const uint64_t one = 1;
    while (::write(wake_fd_, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

  void serve() {
    listen();
    while (true) {
      fill();
      if (in_flight_ == 0 && !listening_) return;
      submit_and_wait();
      take_completions();
      // What is told may take its time, as the checksum of a block does: the disk has its next requests before that.
      fill();
      if (const int taken = io_uring_submit(&ring_); taken < 0) check_submission(taken);
      for (const auto& [request, result] : completed_) {
        request->done(result);
        delete request;
      }
      completed_.clear();
    }
  }

  void take_completions() {
    io_uring_cqe* completion = nullptr;
    while (io_uring_peek_cqe(&ring_, &completion) == 0) {
      auto* request = static_cast<BlockRequest*>(io_uring_cqe_get_data(completion));
      const int64_t result = completion->res;
      io_uring_cqe_seen(&ring_, completion);
      if (request == nullptr) {
        listening_ = false;
        const std::lock_guard lock(mutex_);
        if (!stopping_) listen();
      } else {
        --in_flight_;
        completed_.emplace_back(request, result);
      }
    }
  }

  // Asks the ring to tell when the eventfd is written to. A ring that is stopping has heard all it waits for: what
  // completions start is found by fill().
  void listen() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    io_uring_prep_read(entry, wake_fd_, &woken_, sizeof woken_, 0);
    io_uring_sqe_set_data(entry, nullptr);
    listening_ = true;
  }

  // Moves requests from the queue to the ring while there is room.
  void fill() {
    const std::lock_guard lock(mutex_);
    while (in_flight_ < depth_ && !queue_.empty()) {
      auto* request = new BlockRequest(std::move(queue_.front()));
      queue_.pop_front();
      io_uring_sqe* entry = io_uring_get_sqe(&ring_);
      prepare(entry, *request);
      io_uring_sqe_set_data(entry, request);
      ++in_flight_;
    }
  }

  // Called with the lock held.
  void prepare(io_uring_sqe* entry, const BlockRequest& request) const {
    const auto nbytes = static_cast<unsigned>(request.nbytes);
    const int slot = slot_of(request);
    if (request.kind == BlockRequest::Kind::read) {
      if (slot < 0) return io_uring_prep_read(entry, request.fd, request.memory, nbytes, request.offset);
      return io_uring_prep_read_fixed(entry, request.fd, request.memory, nbytes, request.offset, slot);
    }
    if (slot < 0) return io_uring_prep_write(entry, request.fd, request.memory, nbytes, request.offset);
    return io_uring_prep_write_fixed(entry, request.fd, request.memory, nbytes, request.offset, slot);
  }

  // Of the registered memory that holds all of a request; -1 when none does.
  int slot_of(const BlockRequest& request) const {
    for (size_t slot = 0; slot < memory_.size(); ++slot) {
      const Memory& memory = memory_[slot];
      if (request.memory >= memory.begin && request.memory + request.nbytes <= memory.begin + memory.nbytes) {
        return static_cast<int>(slot);
      }
    }
    return -1;
  }

  void submit_and_wait() {
    const int taken = io_uring_submit_and_wait(&ring_, 1);
    if (taken >= 0 || taken == -EINTR) return;
    check_submission(taken);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  // The kernel may be short of memory for the moment; what it did not take stays in the ring.
  static void check_submission(int taken) {
    SHOAL_CHECK(taken == -EINTR || taken == -EAGAIN || taken == -EBUSY || taken == -ENOMEM, "io_uring_enter: {}",
                words_of_errno(-taken));
  }

  io_uring ring_;
  const int wake_fd_;
  const int depth_;
  bool has_slots_ = false;

  // Of the thread alone.
  int in_flight_ = 0;
  bool listening_ = false;
  uint64_t woken_ = 0;
  std::vector<std::pair<BlockRequest*, int64_t>> completed_;  // and not told yet

  std::mutex mutex_;
  std::deque<BlockRequest> queue_;
  std::vector<Memory> memory_;  // registered, by slot
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace

std::unique_ptr<BlockIo> make_uring_io(int depth, std::string* why_not) {
  SHOAL_CHECK_GE(depth, 1);
  io_uring ring{};
  if (const int failed = io_uring_queue_init(static_cast<unsigned>(depth) + 1, &ring, 0); failed != 0) {
    *why_not = "io_uring: " + words_of_errno(-failed);
    return nullptr;
  }
  int failed = try_ring(ring);
  const int wake_fd = failed == 0 ? ::eventfd(0, EFD_CLOEXEC) : -1;
  if (failed == 0 && wake_fd < 0) failed = errno;
  if (failed != 0) {
    io_uring_queue_exit(&ring);
    *why_not = "io_uring: " + words_of_errno(failed);
    return nullptr;
  }
  return std::make_unique<UringIo>(ring, wake_fd, depth);
}

}  // namespace shoal
