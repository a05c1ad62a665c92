// What carriers for memory of a GPU have in common: a stream of their own, and the marks between it and the stream on
// which the rank computes. No collective waits for the GPU: it is given to the stream, and events keep the order. Where
// the stream may come to wait for other ranks, a watchdog looks after it.
#pragma once

#include <memory>
#include <string>

#include "comm/carrier.h"
#include "comm/cuda_mark.h"
#include "comm/watchdog.h"
#include "device/cuda.h"
#include "device/cuda_holds.h"
#include "device/queue.h"

namespace shoal {

class CudaCarrier : public Carrier {
 public:
  explicit CudaCarrier(const ComputeStream& compute);

  std::shared_ptr<const void> mark() final;
  void come_after(const std::shared_ptr<const void>& mark, const Ticket& ticket) final;
  Joining joining() final;
  void drop() final;
  std::shared_ptr<Alarm> alarm() const final { return alarm_; }
  void* stream() const final { return stream_.handle(); }
  double held_seconds() final { return holds_->held_seconds(); }
  void log_holds_as(const std::string& what) final { holds_->log_as(what); }
  std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) final;
  std::shared_ptr<Ledger> ledger() const final { return ledger_; }

 protected:
  enum class WatchFrom {
    begin,  // before its call: the call itself may wait for other ranks, and knows no timeout
    given   // once it is on the stream: until then the hosts' own timeout holds
  };
  // Has a watchdog look after the collectives. Called once, by the constructor of a carrier whose stream may come to
  // wait for other ranks; barriers are meetings of hosts and are not watched. Of the options the carrier fills in all
  // that is its own.
  void watch(WatchFrom from, std::shared_ptr<Fate> fate, Watchdog::Options options = {});
  // Holds the calling thread until the stream has done all it was given; throws when that will not be.
  void drain();
  // Throws why the collectives cannot go on, if that is known.
  void check() const { watching_.check(); }

  const ComputeStream& compute() const { return compute_; }
  Queue& queue() { return *queue_; }
  // This rank's shard in GPU memory: one that lies in host memory comes to its slice of the whole first.
  const void* shard_on_gpu(const AllGather& args);
  // Memory of the GPU that is the carrier's own, at least this large; the same memory grows from call to call.
  std::byte* scratch(size_t nbytes);
  // shard = round(post * sum of the ranks' slices), the sources in GPU memory of this process.
  void sum_slices(const std::vector<const void*>& sources, const ReduceScatter& args);

 private:
  ComputeStream compute_;
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  cuda::Stream stream_;
  std::unique_ptr<Queue> queue_;      // on that stream
  std::shared_ptr<CudaHolds> holds_;  // of the stream on which the rank computes; shared with handles
  std::shared_ptr<Slab> scratch_;
  WatchFrom watch_from_ = WatchFrom::given;
  std::shared_ptr<Alarm> alarm_;  // shared with all who wait for the stream
  Alarms watching_;               // that one, or none
  std::shared_ptr<EventPool> marks_;
  std::shared_ptr<CudaMark> under_way_;  // shared with the watchdog; null between collectives
  std::string under_way_at_;
  std::unique_ptr<Watchdog> watchdog_;  // ends first
};

}  // namespace shoal
