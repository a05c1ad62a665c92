// What carriers for memory of a GPU have in common: a stream of their own, and the marks between it and the stream on
// which the rank computes. No collective waits for the GPU: it is given to the stream, and events keep the order. Where
// the stream may come to wait for other ranks, a watchdog looks after it.
#pragma once

#include <limits>
#include <memory>
#include <string>

#include "comm/failure/watchdog.h"
#include "comm/gpu/cuda_mark.h"
#include "comm/group/carrier.h"
#include "device/cuda.h"
#include "device/cuda_stalls.h"
#include "device/queue.h"

namespace shoal {

// Where a rank computes on a GPU.
struct ComputeStream {
  int device = 0;
  void* stream = nullptr;
};

// The stream of a channel and what belongs to it. The carriers split from the channel's share it, so that its
// collectives run in the order in which they were issued.
struct CudaLane {
  explicit CudaLane(const ComputeStream& compute);

  cuda::Stream stream;
  std::unique_ptr<Queue> queue;        // on that stream
  std::shared_ptr<CudaStalls> stalls;  // of the stream on which the rank computes; shared with handles
  std::shared_ptr<Alarm> alarm;        // shared with all who wait for the stream; null: nobody watches it
  Alarms watching;                     // that one, or none
};

class CudaCarrier : public Carrier {
 public:
  // `lane`: of the carrier that it is split from; null: one of its own.
  CudaCarrier(About about, const ComputeStream& compute, std::shared_ptr<CudaLane> lane = nullptr);

  void sum(const kernels::OrderedFold& fold) final;
  void copy(void* to, const void* from, size_t nbytes) final { queue().copy(to, from, nbytes); }
  std::byte* scratch(size_t nbytes) final;
  // Every rank sums everything.
  size_t most_nbytes_summed_alone() const override { return std::numeric_limits<size_t>::max(); }

  std::shared_ptr<const void> mark() final;
  void come_after(const std::shared_ptr<const void>& mark, const Ticket& ticket) final;
  Joining joining() final;
  void drop() final;
  std::shared_ptr<Alarm> alarm() const final { return lane_->alarm; }
  void* stream() const final { return lane_->stream.handle(); }
  double held_seconds() final { return lane_->stalls->held_seconds(); }
  void log_stalls_as(const std::string& what) final { lane_->stalls->log_as(what); }
  std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) final;

 protected:
  enum class WatchFrom {
    begin,  // before its call: the call itself may wait for other ranks, and knows no timeout
    given   // once it is on the stream: until then the hosts' own timeout holds
  };
  // Has a watchdog look after the collectives. Called once, by the constructor of a carrier whose stream may come to
  // wait for other ranks; barriers and splits are meetings of hosts and are not watched. Of the options the carrier
  // fills in all that is its own.
  void watch(WatchFrom from, Watchdog::Options options = {});
  // Called for each collective that is watched, before it is given to the stream.
  virtual void issued(const Ticket&) {}
  // Holds the calling thread until the stream has done all it was given; throws when that will not be.
  void drain();
  // Throws why the collectives cannot go on, if that is known.
  void check() const { lane_->watching.check(); }

  // Memory of the carrier's own, kept from call to call, that grows where it is too small.
  std::byte* grown(std::shared_ptr<Slab>& slab, size_t nbytes);

  const ComputeStream& compute() const { return compute_; }
  Queue& queue() { return *lane_->queue; }
  // For a carrier that is split from this one.
  std::shared_ptr<CudaLane> lane_for(Lane lane) const { return lane == Lane::shared ? lane_ : nullptr; }
  // This rank's strip in GPU memory: one that lies in host memory comes to its place in the whole first.
  const std::byte* own_on_gpu(const Gather& args);
  // shard = round(post * sum of the ranks' slices), the sources in GPU memory of this process.
  void sum_slices(const std::vector<const void*>& sources, const ReduceScatter& args);

 private:
  ComputeStream compute_;
  std::shared_ptr<CudaLane> lane_;  // shared with the carriers split from this one
  std::shared_ptr<Slab> scratch_;
  WatchFrom watch_from_ = WatchFrom::given;
  std::shared_ptr<EventPool> marks_;
  std::shared_ptr<CudaMark> under_way_;  // shared with the watchdog; null between collectives
  std::string under_way_at_;
  uint64_t under_way_sequence_ = 0;
  std::unique_ptr<Watchdog> watchdog_;  // ends first
};

}  // namespace shoal
