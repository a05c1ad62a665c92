// A world of one rank: each collective is carried out in the call itself, by the same kernels as in a larger world,
// so that pre, post, accumulation and rounding mean the same.
#include <atomic>
#include <cstring>
#include <mutex>

#include "base/check.h"
#include "comm/failure/failure.h"
#include "comm/gpu/cuda_single_carrier.h"
#include "comm/group/full_group.h"
#include "comm/group/handle.h"
#include "comm/group/parts.h"
#include "comm/group/reduction.h"
#include "comm/world/channel_group.h"
#include "device/slab.h"
#include "kernels/reduce.h"
#include "shoal/group.h"

namespace shoal {

namespace {

class SingleGroup final : public FullGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::vector<int>& members() const override { return members_.ranks(); }

  Handle all_gather(AllGather args) override {
    begin();
    if (args.shard != args.whole && args.shard_nbytes > 0) std::memcpy(args.whole, args.shard, args.shard_nbytes);
    return finished(args.after);
  }

  Handle reduce_scatter(ReduceScatter args) override {
    begin();
    kernels::OrderedFold fold = fold_of(args);
    fold.sources = &args.whole;
    fold.source_count = 1;
    kernels::ordered_fold(fold);
    return finished(args.after);
  }

  Handle all_reduce(AllReduce args) override { return reduce_scatter(reduction_of(args)); }

  Handle broadcast(Broadcast args) override {
    begin();
    SHOAL_CHECK_EQ(args.root, 0);
    return Handle();
  }

  Handle exchange(Exchange args) override {
    begin();
    if (args.take && args.slice_nbytes > 0) {
      return finished([&] {
        args.take({0, args.slice_nbytes, &args.slices});
        if (args.after) args.after();
      });
    }
    if (args.received != args.slices && args.slice_nbytes > 0) {
      std::memcpy(args.received, args.slices, args.slice_nbytes);
    }
    return finished(args.after);
  }

  Handle barrier(Subject) override {
    begin();
    return Handle();
  }

  std::unique_ptr<Group> split(const std::string& name, const Parts& parts) override {
    begin();
    part_of(parts, members_, name);
    return std::make_unique<SingleGroup>(stopped_);
  }

  std::unique_ptr<Group> channel(const std::string&) override { return std::make_unique<SingleGroup>(stopped_); }

  std::unique_ptr<Group> device_channel(const std::string&, int device, void* compute_stream, Reduce) override {
    return std::make_unique<ChannelGroup>(std::make_unique<CudaSingleCarrier>(ComputeStream{device, compute_stream}));
  }

  std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) override {
    return Slab::create(nbytes, Slab::Backing::anonymous, std::move(ledger), kind);
  }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(stopped_->mutex);
    if (stopped_->cause.empty()) stopped_->cause = cause_aborted(0, reason);
  }

  Traffic traffic() const override { return {0, 0, collectives_.load()}; }
  std::string transport_name() const override { return "one rank"; }

  struct Stopped {
    std::mutex mutex;
    std::string cause;
  };
  explicit SingleGroup(std::shared_ptr<Stopped> stopped = std::make_shared<Stopped>()) : stopped_(std::move(stopped)) {}

 private:
  // What comes after a collective has run, or failed.
  static Handle finished(const std::function<void()>& after) {
    if (!after) return Handle();
    auto state = std::make_shared<Handle::State>();
    try {
      after();
      state->finish(nullptr);
    } catch (...) {
      state->finish(std::current_exception());
    }
    return Handle(state);
  }

  void begin() {
    const std::lock_guard lock(stopped_->mutex);
    if (!stopped_->cause.empty()) throw Error("comm rank 0", stopped_->cause);
    ++collectives_;
  }

  const Members members_ = Members::all(1, 0);
  std::shared_ptr<Stopped> stopped_;  // shared by the channels: an abort stops them all
  std::atomic<uint64_t> collectives_{0};
};

}  // namespace

std::unique_ptr<Group> make_single_group() { return std::make_unique<SingleGroup>(); }

}  // namespace shoal
