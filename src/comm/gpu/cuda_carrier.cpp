// See cuda_carrier.h.
#include "comm/gpu/cuda_carrier.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "comm/group/reduction.h"
#include "device/cuda_queue.h"
#include "kernels/cuda/reduce.h"
#include "shoal/error.h"

namespace shoal {

namespace {

const ComputeStream& on_its_device(const ComputeStream& compute) {
  cuda::use_device(compute.device);
  return compute;
}

}  // namespace

CudaLane::CudaLane(const ComputeStream& compute)
    : stream(cuda::Stream::Priority::high),
      queue(make_cuda_queue(compute.device, stream.handle())),
      stalls(std::make_shared<CudaStalls>(compute.device, compute.stream)) {}

CudaCarrier::CudaCarrier(About about, const ComputeStream& compute, std::shared_ptr<CudaLane> lane)
    : Carrier(std::move(about)),
      compute_(on_its_device(compute)),
      lane_(lane ? std::move(lane) : std::make_shared<CudaLane>(compute)) {}

std::shared_ptr<const void> CudaCarrier::mark() {
  cuda::use_device(compute_.device);
  auto event = std::make_shared<cuda::Event>();
  event->record(compute_.stream);
  return event;
}

void CudaCarrier::watch(WatchFrom from, Watchdog::Options options) {
  watch_from_ = from;
  if (!lane_->alarm) {
    lane_->alarm = std::make_shared<Alarm>();
    lane_->watching.add(lane_->alarm);
    lane_->queue->heed(lane_->alarm);
  }
  marks_ = std::make_shared<EventPool>();
  options.rank = global();
  if (fate()) options.timeout = fate()->timeout();
  options.fate = fate();
  options.alarm = lane_->alarm;
  options.prepare = [device = compute_.device] { cuda::begin_watching(device); };
  watchdog_ = std::make_unique<Watchdog>(std::move(options));
}

void CudaCarrier::drain() {
  cuda::use_device(compute_.device);
  cuda::Event end;
  end.record(stream());
  lane_->watching.wait([&] { return end.reached(); }, [&] { end.synchronize(); });
}

void CudaCarrier::come_after(const std::shared_ptr<const void>& mark, const Ticket& ticket) {
  check();
  cuda::use_device(compute_.device);  // the worker is a thread of its own
  // The collective waits for what the rank computed before it was issued: the bytes that it sends, and the last use of
  // those that it overwrites.
  static_cast<const cuda::Event*>(mark.get())->hold_back(stream());
  const bool of_hosts = ticket.kind == CollectiveKind::barrier || ticket.kind == CollectiveKind::split;
  if (!watchdog_ || of_hosts) return;
  under_way_ = std::make_shared<CudaMark>(marks_, stream());
  under_way_at_ = describe(ticket, channel_name());
  under_way_sequence_ = ticket.sequence;
  issued(ticket);
  if (watch_from_ == WatchFrom::begin) watchdog_->watch(under_way_at_, under_way_, ticket.sequence);
}

Joining CudaCarrier::joining() {
  auto over = std::make_shared<cuda::Event>();
  over->record(stream());
  if (under_way_) {
    under_way_->end(over);
    if (watch_from_ == WatchFrom::given) watchdog_->watch(std::move(under_way_at_), under_way_, under_way_sequence_);
    under_way_.reset();
  }
  return {.hold_back =
              [over, alarm = lane_->alarm, stalls = lane_->stalls] {
                if (alarm) alarm->check();
                stalls->hold(*over);  // what the rank computes after wait() waits for the collective
              },
          .over =
              [over, alarm = lane_->alarm](bool block) {
                if (!block) return over->reached();
                Alarms alarms;
                alarms.add(alarm);
                alarms.wait([&] { return over->reached(); }, [&] { over->synchronize(); });
                return true;
              }};
}

void CudaCarrier::drop() {
  if (under_way_) under_way_->drop();
  under_way_.reset();
}

std::shared_ptr<Slab> CudaCarrier::allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) {
  return queue().allocate(nbytes, std::move(ledger), kind);
}

const std::byte* CudaCarrier::own_on_gpu(const Gather& args) {
  const size_t nbytes = args.nbytes_at(rank());
  if (nbytes == 0 || cuda::is_on_gpu(args.own)) return args.own;
  queue().copy(args.place(rank()), args.own, nbytes);
  return args.place(rank());
}

std::byte* CudaCarrier::scratch(size_t nbytes) { return grown(scratch_, nbytes); }

std::byte* CudaCarrier::grown(std::shared_ptr<Slab>& slab, size_t nbytes) {
  if (!slab || slab->nbytes() < nbytes) {
    if (slab && watchdog_) drain();  // freeing memory waits too, and would not end with an alarm
    slab.reset();                    // waits for what uses it
    slab = queue().allocate(nbytes, ledger(), MemoryKind::staging);
  }
  return slab->data();
}

void CudaCarrier::sum(const kernels::OrderedFold& fold) {
  if (fold.source_count > kernels::cuda::kMostSources) {
    throw Error(fmt::format("comm rank {}", global()),
                fmt::format("gradients of {} ranks are to be added on a GPU, and {} is the most there. Train with "
                            "fewer ranks, or set shoal.reduce to nccl where NCCL carries them.",
                            fold.source_count, kernels::cuda::kMostSources));
  }
  queue().ordered_fold(fold);
}

void CudaCarrier::sum_slices(const std::vector<const void*>& sources, const ReduceScatter& args) {
  kernels::OrderedFold fold = fold_of(args);
  fold.sources = sources.data();
  fold.source_count = static_cast<int>(sources.size());
  sum(fold);
}

}  // namespace shoal
