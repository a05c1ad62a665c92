// See cuda_carrier.h.
#include "comm/cuda_carrier.h"

#include <utility>
#include <vector>

#include "comm/reduction.h"
#include "device/cuda_queue.h"

namespace shoal {

namespace {

const ComputeStream& on_its_device(const ComputeStream& compute) {
  cuda::use_device(compute.device);
  return compute;
}

}  // namespace

CudaCarrier::CudaCarrier(const ComputeStream& compute)
    : compute_(on_its_device(compute)),
      stream_(cuda::Stream::Priority::high),
      queue_(make_cuda_queue(compute.device, stream_.handle())),
      holds_(std::make_shared<CudaHolds>(compute.device, compute.stream)) {}

std::shared_ptr<const void> CudaCarrier::mark() {
  cuda::use_device(compute_.device);
  auto event = std::make_shared<cuda::Event>();
  event->record(compute_.stream);
  return event;
}

void CudaCarrier::watch(WatchFrom from, std::shared_ptr<Fate> fate, Watchdog::Options options) {
  watch_from_ = from;
  alarm_ = std::make_shared<Alarm>();
  watching_.add(alarm_);
  queue_->heed(alarm_);
  marks_ = std::make_shared<EventPool>();
  options.rank = rank();
  if (fate) options.timeout = fate->timeout();
  options.fate = std::move(fate);
  options.alarm = alarm_;
  options.prepare = [device = compute_.device] { cuda::begin_watching(device); };
  watchdog_ = std::make_unique<Watchdog>(std::move(options));
}

void CudaCarrier::drain() {
  cuda::use_device(compute_.device);
  cuda::Event end;
  end.record(stream_.handle());
  watching_.wait([&] { return end.reached(); }, [&] { end.synchronize(); });
}

void CudaCarrier::come_after(const std::shared_ptr<const void>& mark, const Ticket& ticket) {
  check();
  cuda::use_device(compute_.device);  // the worker is a thread of its own
  // The collective waits for what the rank computed before it was issued: the bytes that it sends, and the last use of
  // those that it overwrites.
  static_cast<const cuda::Event*>(mark.get())->hold_back(stream_.handle());
  if (!watchdog_ || ticket.kind == CollectiveKind::barrier) return;
  under_way_ = std::make_shared<CudaMark>(marks_, stream_.handle());
  under_way_at_ = describe(ticket, channel_name());
  if (watch_from_ == WatchFrom::begin) watchdog_->watch(under_way_at_, under_way_);
}

Joining CudaCarrier::joining() {
  auto over = std::make_shared<cuda::Event>();
  over->record(stream_.handle());
  if (under_way_) {
    under_way_->end(over);
    if (watch_from_ == WatchFrom::given) watchdog_->watch(std::move(under_way_at_), under_way_);
    under_way_.reset();
  }
  return {.hold_back =
              [over, alarm = alarm_, holds = holds_] {
                if (alarm) alarm->check();
                holds->hold(*over);  // what the rank computes after wait() waits for the collective
              },
          .over =
              [over, alarm = alarm_](bool block) {
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
  return queue_->allocate(nbytes, std::move(ledger), kind);
}

const void* CudaCarrier::shard_on_gpu(const AllGather& args) {
  if (args.shard_nbytes == 0 || cuda::is_on_gpu(args.shard)) return args.shard;
  std::byte* slice = static_cast<std::byte*>(args.whole) + static_cast<size_t>(rank()) * args.shard_nbytes;
  queue_->copy(slice, args.shard, args.shard_nbytes);
  return slice;
}

std::byte* CudaCarrier::scratch(size_t nbytes) {
  if (!scratch_ || scratch_->nbytes() < nbytes) {
    if (scratch_ && watchdog_) drain();  // freeing memory waits too, and would not end with an alarm
    scratch_.reset();                    // waits for what uses it
    scratch_ = queue_->allocate(nbytes, ledger_, MemoryKind::staging);
  }
  return scratch_->data();
}

void CudaCarrier::sum_slices(const std::vector<const void*>& sources, const ReduceScatter& args) {
  kernels::OrderedMean mean = mean_of(args);
  mean.sources = sources.data();
  mean.source_count = static_cast<int>(sources.size());
  queue_->ordered_mean(mean);
}

}  // namespace shoal
