// Ranks that talk to each other. A Group is one ordered channel of collectives over all ranks: calls return at
// once, run in the order they were issued, and must be issued in the same order on every rank.
// Where the bytes travel (same process, shared memory, Gloo) is the transport's affair; the results are the same bits.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shoal/dtype.h"

namespace shoal {

class Alarm;
class Fate;
class Ledger;
class Slab;
struct Config;
enum class MemoryKind : uint8_t;

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
  bool accumulate = false;      // add to `shard` instead of writing it
  int64_t piece_numel = 0;      // cut into pieces of at most this many elements of `whole`; 0: one piece
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

// Bytes over the wire, as the ZeRO paper counts them: what a rank must send to and receive from others.
// W ranks, n bytes of a shard: all_gather and reduce_scatter (W-1)n each way, all_reduce both; broadcast: the root
// sends (W-1)n, the others receive n; barrier and the transports' own notes: nothing.
struct Traffic {
  uint64_t sent_nbytes = 0;
  uint64_t received_nbytes = 0;
  uint64_t collectives = 0;
};

class Group {
 public:
  virtual ~Group() = default;  // communicates nothing; peers that still wait are told that this rank left

  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual Handle all_gather(AllGather args) = 0;
  virtual Handle reduce_scatter(ReduceScatter args) = 0;
  virtual Handle all_reduce(AllReduce args) = 0;
  virtual Handle broadcast(Broadcast args) = 0;
  virtual Handle barrier(Subject subject) = 0;

  // Another ordered channel over the same ranks, independent of this one. Every rank calls it, in the same order.
  virtual std::unique_ptr<Group> channel(const std::string& name) = 0;

  // Such a channel for memory of this rank's GPU. Its collectives run on a stream of their own, each after all that
  // `compute_stream` (a cudaStream_t) had been given when it was issued; Handle::wait() then holds back that stream,
  // not the caller. Every rank calls it.
  virtual std::unique_ptr<Group> device_channel(const std::string& name, int device, void* compute_stream) = 0;
  // The stream of such a channel, on which ReduceScatter::after runs; null in host memory.
  virtual void* stream() const { return nullptr; }
  // Raised when the collectives of such a channel cannot end; whoever waits for the GPU behind them heeds it. Null
  // where they wait for nobody once they are on the stream.
  virtual std::shared_ptr<Alarm> alarm() const { return nullptr; }

  // Memory that the transport reads from peers without a copy, where it can; plain memory otherwise.
  // Collectives accept any other memory too, and stage it where they must.
  virtual std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) = 0;

  // Unmaps what this rank has mapped of its peers' memory, so that what they freed is really gone. The next
  // collectives map again what they need. Peers' freed memory is also let go in the course of later collectives.
  virtual void forget_peer_memory() {}

  // What the transport holds itself to copy memory through that it cannot reach otherwise.
  virtual size_t staging_nbytes() const { return 0; }

  // Tells every rank to stop waiting and throw `reason`; for a rank that failed and cannot go on.
  virtual void abort(const std::string& reason) = 0;

  // What this world knows of ranks that failed or died; null where nobody else is there.
  virtual std::shared_ptr<Fate> fate() const { return nullptr; }

  virtual Traffic traffic() const = 0;
  // Seconds that callers have been held up in wait() so far.
  virtual double waited_seconds() const { return 0; }
  // Seconds that the GPU's stream on which the rank computes has stood still for this device channel's collectives so
  // far: of those that it has come past.
  virtual double held_seconds() { return 0; }
  // What it stands still for, as a trace of waits calls it. Until then a trace has nothing of it.
  virtual void log_holds_as(const std::string&) {}
  // "threads", "shared memory", "gloo" or "one rank"; of a device channel "GPU, " and how its bytes travel.
  virtual std::string transport_name() const = 0;
};

using Timeout = std::chrono::milliseconds;
inline constexpr Timeout kDefaultTimeout = std::chrono::minutes(10);

// A world of one rank.
std::unique_ptr<Group> make_single_group();

// `size` ranks as threads of this process: element r belongs to the thread that plays rank r.
std::vector<std::unique_ptr<Group>> make_thread_groups(int size, Timeout timeout = kDefaultTimeout);

enum class Transport : uint8_t { automatic, shared_memory, gloo };

struct ProcessGroupOptions {
  Transport transport = Transport::automatic;  // automatic: shared memory when all ranks share a host
  Timeout timeout = kDefaultTimeout;
};

// What a config says of the transport and the timeout.
ProcessGroupOptions process_group_options(const Config& config);

// The number of ranks that the environment of torchrun, mpirun or srun names; a config needs it before ranks meet.
int world_size_of_environment();

// Joins the world described by the environment of torchrun, mpirun or srun. Blocks until all ranks are there.
std::unique_ptr<Group> make_process_group(const ProcessGroupOptions& options = {});

}  // namespace shoal
