// See cuda_copy_streams.h.
#include "device/cuda_copy_streams.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <memory>
#include <utility>

#include "device/cuda_stalls.h"

namespace shoal {

namespace {

struct Marks {
  cuda::Event ready;   // on the copy stream in: the bytes are there
  cuda::Event used;    // on the queue: its work on them is done
  cuda::Event stored;  // on the copy stream out: the host has them
};

// [Note: a copy stream gives others their turn]
// A copy engine of a GPU stays with one stream for as long as that stream has a copy that can begin: a batch, a loss
// that is read, or the few bytes on which a step is decided would wait for all chunks that are on their way. So after
// so many bytes the last few go by a second stream, and the copy stream goes on when they are there. For these
// microseconds the copy stream has nothing that can begin, and the engine goes round all others. (A wait alone does not
// do it: the second stream's own copy is what the engine turns to.)
constexpr size_t kPieceNbytes = size_t{40} << 20;  // a chunk of AdamW's states goes in one
constexpr size_t kTurnNbytes = size_t{32} << 20;   // a piece that makes these full ends with a turn
constexpr size_t kLastNbytes = 64;                 // by the second stream

// One way.
class CopyLane {
 public:
  void carry(std::byte* to, const std::byte* from, size_t nbytes) {
    while (nbytes > 0) {
      const size_t piece = std::min(nbytes, kPieceNbytes);
      carried_nbytes_ += piece;
      if (carried_nbytes_ >= kTurnNbytes) {
        carry_and_give_turn(to, from, piece);
      } else {
        cuda::copy(to, from, piece, stream_.handle());
      }
      to += piece;
      from += piece;
      nbytes -= piece;
    }
  }
  void synchronize() {
    cuda::synchronize(stream_.handle());
    cuda::synchronize(second_.handle());  // where an error left it without a wait
  }
  cuda::StreamHandle handle() const { return stream_.handle(); }

 private:
  void carry_and_give_turn(std::byte* to, const std::byte* from, size_t nbytes) {
    const size_t first_nbytes = nbytes - std::min(nbytes, kLastNbytes);
    cuda::copy(to, from, first_nbytes, stream_.handle());
    first_through_.record(stream_.handle());
    first_through_.hold_back(second_.handle());  // the last bytes come after the rest
    cuda::copy(to + first_nbytes, from + first_nbytes, nbytes - first_nbytes, second_.handle());
    all_through_.record(second_.handle());
    all_through_.hold_back(stream_.handle());  // and whatever the copy stream does next, after them
    carried_nbytes_ = 0;
  }

  cuda::Stream stream_, second_;
  cuda::Event first_through_, all_through_;
  size_t carried_nbytes_ = 0;  // since the last turn
};

class CudaCopyStreams final : public CopyStreams {
 public:
  CudaCopyStreams(int device, cuda::StreamHandle queue, int chunks, std::shared_ptr<const Alarms> alarms)
      : device_(device),
        queue_(queue),
        alarms_(std::move(alarms)),
        marks_(static_cast<size_t>(chunks)),
        holds_(device, queue) {}
  ~CudaCopyStreams() override {
    try {  // a wait that an alarm ended left copies behind; they end before their memory goes
      in_.synchronize();
      out_.synchronize();
    } catch (...) {  // a GPU that failed has said so where its bytes were needed
    }
    if (pinned_ != nullptr) cuda::unregister_host(pinned_);
  }
  CudaCopyStreams(const CudaCopyStreams&) = delete;
  CudaCopyStreams& operator=(const CudaCopyStreams&) = delete;

  void make_room(int chunks) override {
    cuda::use_device(device_);
    while (marks_.size() < static_cast<size_t>(chunks)) marks_.emplace_back();
  }

  std::string pin(std::byte* host, size_t nbytes) override {
    try {
      cuda::use_device(device_);  // this may be a thread of its own
      cuda::register_host(host, nbytes);
      pinned_ = host;
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  void enter_thread() override { cuda::use_device(device_); }

  void follow_queue() override {
    mark_queue();
    follow_mark();
  }
  void mark_queue() override { here_.record(queue_); }
  void follow_mark() override {
    here_.hold_back(in_.handle());
    here_.hold_back(out_.handle());
  }
  void copy_in(int chunk, std::byte* to, const std::byte* from_host, size_t nbytes, int after) override {
    if (after >= 0) marks_of(after).stored.hold_back(in_.handle());
    in_.carry(to, from_host, nbytes);
    marks_of(chunk).ready.record(in_.handle());
  }
  void hold_queue(int chunk) override { holds_.hold(marks_of(chunk).ready); }
  void stop_queue() override { holds_.stop(); }
  void forget_stop() override { holds_.forget_stop(); }
  void hold_queue_out(int chunk) override { holds_.hold(marks_of(chunk).stored); }
  void mark_used(int chunk) override { marks_of(chunk).used.record(queue_); }
  void copy_out(int chunk, std::byte* to_host, const std::byte* from, size_t nbytes) override {
    marks_of(chunk).used.hold_back(out_.handle());
    out_.carry(to_host, from, nbytes);
    marks_of(chunk).stored.record(out_.handle());
  }
  void wait_in(int chunk) override { wait_for(marks_of(chunk).ready); }
  void wait_out(int chunk) override { wait_for(marks_of(chunk).stored); }
  void wait_used(int chunk) override { wait_for(marks_of(chunk).used); }
  double newly_held_seconds() override { return holds_.newly_held_seconds(); }
  void log_stalls_as(const std::string& what) override { holds_.log_as(what); }

 private:
  void wait_for(const cuda::Event& event) const {
    alarms_->wait([&] { return event.reached(); }, [&] { event.synchronize(); });
  }
  Marks& marks_of(int chunk) { return marks_[static_cast<size_t>(chunk)]; }

  int device_;
  cuda::StreamHandle queue_;
  std::shared_ptr<const Alarms> alarms_;  // the queue's
  std::deque<Marks> marks_;               // events do not move
  CudaStalls holds_;
  CopyLane in_, out_;
  cuda::Event here_;  // where the queue was when copies were given
  std::byte* pinned_ = nullptr;
};

}  // namespace

std::unique_ptr<CopyStreams> make_cuda_copy_streams(int device, cuda::StreamHandle queue, int chunks,
                                                    std::shared_ptr<const Alarms> alarms) {
  cuda::use_device(device);
  return std::make_unique<CudaCopyStreams>(device, queue, chunks, std::move(alarms));
}

}  // namespace shoal
