// Ranks that talk to each other. A Group is one ordered channel of collectives over all ranks of a world or some of
// them: calls return at once, run in the order they were issued, and must be issued in the same order on every rank.
// Where the bytes travel (same process, shared memory, Gloo) is the transport's affair; the results are the same bits.
// Groups come from the functions at the end of this file, and from channel() and split(); a program cannot write its
// own, for the engine asks more of a group than stands here.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shoal/dtype.h"
#include "shoal/transport.h"

namespace shoal {

struct Config;

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
struct ReduceScatter {
  Subject subject;
  const void* whole = nullptr;  // size() * shard_numel elements of `whole_dtype`
  DType whole_dtype = DType::f32;
  void* shard = nullptr;  // shard_numel elements of `shard_dtype`; may be this rank's own slice of `whole`
  DType shard_dtype = DType::f32;
  int64_t shard_numel = 0;
  float pre = 1.0f;
  float post = 1.0f;
  bool accumulate = false;  // add to `shard` instead of writing it
  // At most this many elements of `whole` are copied to staging memory at a time, where a transport needs any: Gloo,
  // and shared memory whose peers cannot reach `whole`. Others read it as it is (threads, NCCL, GPUs of one process)
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

// Ranks of a group in parts, each by its number in the world, in the order in which the part's group will count them.
using Parts = std::vector<std::vector<int>>;

// Bytes over the wire, as the ZeRO paper counts them: what a rank must send to and receive from others.
// W ranks, n bytes of a shard or slice: all_gather, reduce_scatter and exchange (W-1)n each way, all_reduce that of the
// first two; broadcast: the root sends (W-1)n, the others receive n; barrier, split and the transports' notes: nothing.
struct Traffic {
  uint64_t sent_nbytes = 0;
  uint64_t received_nbytes = 0;
  uint64_t collectives = 0;
};

class Group {
 public:
  virtual ~Group() = default;  // communicates nothing; peers that still wait are told that this rank left

  // This rank's place in the group, and how many there are.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The numbers in the world of the group's ranks, in the order of the group. Messages name ranks by them.
  virtual const std::vector<int>& members() const = 0;

  virtual Handle all_gather(AllGather args) = 0;
  virtual Handle reduce_scatter(ReduceScatter args) = 0;
  virtual Handle all_reduce(AllReduce args) = 0;
  virtual Handle broadcast(Broadcast args) = 0;
  virtual Handle exchange(Exchange args) = 0;
  virtual Handle barrier(Subject subject) = 0;

  // Another ordered channel over the same ranks, independent of this one. Every rank calls it, in the same order.
  virtual std::unique_ptr<Group> channel(const std::string& name) = 0;

  // The group of the part that this rank stands in. Every rank of this group calls it, in the same order and with the
  // same parts, which hold each of them once; anything else is an error. The new group shares this one's worker, so
  // that its collectives and this one's run in the order in which they were issued; a channel of it is independent.
  virtual std::unique_ptr<Group> split(const std::string& name, const Parts& parts) = 0;

  // Tells every rank of the world to stop waiting and throw `reason`; for a rank that failed and cannot go on.
  virtual void abort(const std::string& reason) = 0;

  virtual Traffic traffic() const = 0;
  // "threads", "shared memory", "gloo" or "one rank"; of memory of GPUs "GPU, " and how its bytes travel.
  virtual std::string transport_name() const = 0;

 private:
  Group() = default;
  friend class FullGroup;  // the library's own groups
};

using Timeout = std::chrono::milliseconds;
inline constexpr Timeout kDefaultTimeout = std::chrono::minutes(10);

// A world of one rank.
std::unique_ptr<Group> make_single_group();

// `size` ranks as threads of this process: element r belongs to the thread that plays rank r.
std::vector<std::unique_ptr<Group>> make_thread_groups(int size, Timeout timeout = kDefaultTimeout);

struct ProcessGroupOptions {
  Transport transport = Transport::automatic;
  Timeout timeout = kDefaultTimeout;
};

// What a config says of the transport and the timeout.
ProcessGroupOptions process_group_options(const Config& config);

// The number of ranks that the environment of torchrun, mpirun or srun names; a config needs it before ranks meet.
int world_size_of_environment();

// Joins the world described by the environment of torchrun, mpirun or srun. Blocks until all ranks are there.
std::unique_ptr<Group> make_process_group(const ProcessGroupOptions& options = {});

}  // namespace shoal
