// What is said to and heard of a collective: its arguments, the handle of its result, the bytes it moves. The calls
// themselves are a Group's, see group.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/dtype.h"

namespace shoal {

// The result of a collective to come. Keeps what it was given alive until the collective is over,
// and keeps its error until wait() throws it.
class Handle {
 public:
  Handle() = default;  // already done
  // Blocks until the collective is over; throws what went wrong. May be called again.
  void wait() const;
  bool done() const;

  // Of a device channel: blocks until the GPU has carried the collective out, so that host memory it read may be used
  // again; wait() holds back the rank's stream only. In host memory the same as wait().
  void wait_over() const;
  // Whether wait_over() would return at once.
  bool over() const;

  struct State;
  explicit Handle(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;  // shared with the worker that completes it
};

// What a collective is about, for messages and for finding ranks that disagree: "gather", "block.3".
struct Subject {
  std::string verb;
  std::string unit;
};

struct AllGather {
  Subject subject;
  const void* shard = nullptr;  // this rank's bytes; may be its own slice of `whole` (in place)
  void* whole = nullptr;        // size() * shard_nbytes bytes
  size_t shard_nbytes = 0;
  std::shared_ptr<const void> keep;  // kept alive until done
  std::function<void()> after = {};  // runs on the worker right after it, as in ReduceScatter
};

// shard[i] = round(post * sum over ranks r in order of (pre * whole_r[rank * shard_numel + i])), summed in fp32.
// (With "shoal": {"reduce": "nccl"}, NCCL adds in an order and a dtype of its own.)
struct ReduceScatter {
  Subject subject;
  const void* whole = nullptr;  // size() * shard_numel elements of `whole_dtype`
  DType whole_dtype = DType::f32;
  void* shard = nullptr;  // shard_numel elements of `shard_dtype`; may be this rank's own slice of `whole`
  DType shard_dtype = DType::f32;
  int64_t shard_numel = 0;
  // shard[i] = post * (carry * shard[i] + the ranks' elements, added in the order of ranks), in fp32, rounded once.
  // With carry 0 nothing is read from `shard`: the sum begins with the first rank's element.
  float carry = 0.0f;
  float post = 1.0f;
  std::optional<DType> rounding = {};  // unless told, shard_dtype; a narrower one where that is f32
  // Ranks' elements by groups of `size` (0: one group), and groups in order; see kernels/reduce.h of the sources.
  struct Groups {
    int64_t size = 0;
    int64_t before = 0;     // elements of the first group that earlier reductions brought
    float* open = nullptr;  // their sum, and that of a group that this one leaves open
    bool closes = true;     // it leaves none open
  };
  Groups groups = {};
  // The group's ranks in the order in which their elements are added; empty: as the group counts them.
  std::vector<int> order = {};
  // At most this many elements of `whole` are copied to staging memory at a time, where a transport needs any: Gloo,
  // NCCL, and shared memory whose peers cannot reach `whole`. Others read it as it is (threads, GPUs of one process)
  // and cut nothing. 0: as the transport likes. The sums are the same.
  int64_t piece_numel = 0;
  std::function<void()> after;  // runs on the worker right after the shard is written, before the handle is done
  std::shared_ptr<const void> keep;
};

// Elementwise mean or sum over ranks by the same contract, the result whole on every rank, in place.
struct AllReduce {
  Subject subject;
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t numel = 0;
  float post = 1.0f;
  std::shared_ptr<const void> keep;
};

struct Broadcast {
  Subject subject;
  void* data = nullptr;
  size_t nbytes = 0;
  int root = 0;
  std::shared_ptr<const void> keep;
};

// An all-to-all: slice d of what a rank brings is for rank d. The slices that came for this rank are copied to
// `received`, or handed to `take` where they lie, in the peers' own memory where that can be read.
struct Exchange {
  // A part of the slices for this rank: `nbytes` bytes from `begin` on, of each rank's slice, by rank. `begin` is a
  // multiple of 64. On a GPU the sources may be used by what `take` gives to the group's stream.
  struct Part {
    size_t begin = 0;
    size_t nbytes = 0;
    const void* const* sources = nullptr;  // size() pointers, valid during the call
  };
  Subject subject;
  const void* slices = nullptr;  // size() * slice_nbytes bytes
  size_t slice_nbytes = 0;
  void* received = nullptr;  // size() * slice_nbytes bytes, slice r from rank r; null with `take`
  // Called on the worker, once or for one part after the other. May overwrite this rank's own slice of `slices`.
  std::function<void(const Part&)> take;
  size_t piece_nbytes = 0;      // as ReduceScatter::piece_numel, of `slices`
  std::function<void()> after;  // runs on the worker when all parts were taken
  std::shared_ptr<const void> keep;
};

// Bytes over the wire, as the ZeRO paper counts them: what a rank must send to and receive from others.
// W ranks, n bytes of a shard or slice: all_gather, reduce_scatter and exchange (W-1)n each way, all_reduce that of the
// first two; broadcast: the root sends (W-1)n, the others receive n; barrier, split and the transports' notes: nothing.
// By link: what goes to, or comes from, a rank on another host; by the rendezvous or SHOAL_HOSTS.
struct Traffic {
  uint64_t sent_nbytes = 0;
  uint64_t received_nbytes = 0;
  uint64_t collectives = 0;
  uint64_t sent_between_hosts = 0;      // of sent_nbytes
  uint64_t received_between_hosts = 0;  // of received_nbytes

  Traffic& operator+=(const Traffic& more) {
    sent_nbytes += more.sent_nbytes;
    received_nbytes += more.received_nbytes;
    collectives += more.collectives;
    sent_between_hosts += more.sent_between_hosts;
    received_between_hosts += more.received_between_hosts;
    return *this;
  }
};

}  // namespace shoal
