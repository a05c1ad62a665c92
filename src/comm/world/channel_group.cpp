// See channel_group.h.
#include "comm/world/channel_group.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "comm/gpu/cuda_board_carrier.h"
#include "comm/gpu/cuda_process_carrier.h"
#include "comm/group/parts.h"
#include "comm/group/reduction.h"
#include "comm/group/traffic.h"
#include "shoal/error.h"

namespace shoal {

namespace {

// For those who want the slices of an exchange in memory of their own; a carrier may have put them there already.
Take copying_to_received(Carrier& carrier, const Strips& strips) {
  return [&carrier, strips](const Exchange::Part& part) {
    for (int rank = 0; rank < carrier.size(); ++rank) {
      std::byte* to = strips.received + static_cast<size_t>(rank) * strips.strip_nbytes + part.begin;
      const void* from = part.sources[rank];
      if (to != from) carrier.copy(to, from, part.nbytes);
    }
  };
}

}  // namespace

ChannelGroup::ChannelGroup(std::unique_ptr<Carrier> carrier, std::shared_ptr<Worker> worker, Transport wanted)
    : carrier_(std::move(carrier)), wanted_(wanted), worker_(std::move(worker)) {}

ChannelGroup::~ChannelGroup() {
  carrier_->interrupt();
  std::unique_lock lock(pending_->mutex);
  pending_->changed.wait(lock, [this] { return pending_->count == 0; });
}

Handle ChannelGroup::issue(std::shared_ptr<const void> keep, const std::function<Job(uint64_t)>& make) {
  auto state = std::make_shared<Handle::State>();
  state->keep = std::move(keep);
  state->waited = waited_;
  const std::shared_ptr<const void> mark = carrier_->mark();
  const std::lock_guard lock(mutex_);
  if (const std::exception_ptr failed = failure_->get()) std::rethrow_exception(failed);
  const auto job = std::make_shared<Job>(make(++issued_));  // a function can be copied, so what it holds is shared
  job->state = state;
  job->mark = mark;
  {
    const std::lock_guard count_lock(pending_->mutex);
    ++pending_->count;
  }
  worker_->add([this, job, pending = pending_] {
    run(std::move(*job));
    // From here on the group may be gone.
    const std::lock_guard count_lock(pending->mutex);
    if (--pending->count == 0) pending->changed.notify_all();
  });
  return Handle(state);
}

Handle ChannelGroup::all_gather(AllGather args) {
  auto keep = std::move(args.keep);
  auto after = std::move(args.after);
  return issue(std::move(keep), [&](uint64_t sequence) {
    const Gather gather{static_cast<const std::byte*>(args.shard), static_cast<std::byte*>(args.whole),
                        args.shard_nbytes, args.shard_nbytes * static_cast<size_t>(size())};
    return Job{ticket_of(args, sequence), traffic_of(args, carrier_->members()),
               [this, gather](const Ticket& ticket) { carrier_->all_gather(ticket, gather); }, std::move(after)};
  });
}

Handle ChannelGroup::reduce_scatter(ReduceScatter args) {
  SHOAL_CHECK_GE(args.shard_numel, 0);
  SHOAL_CHECK_GE(args.piece_numel, 0);
  auto keep = std::move(args.keep);
  auto after = std::move(args.after);
  return issue(std::move(keep), [&](uint64_t sequence) {
    return Job{ticket_of(args, sequence, size()), traffic_of(args, carrier_->members()),
               [this, args = std::move(args)](const Ticket& ticket) { shoal::reduce_scatter(*carrier_, ticket, args); },
               std::move(after)};
  });
}

Handle ChannelGroup::all_reduce(AllReduce args) {
  SHOAL_CHECK_GE(args.numel, 0);
  auto keep = std::move(args.keep);
  return issue(std::move(keep), [&](uint64_t sequence) {
    return Job{ticket_of(args, sequence), traffic_of(args, carrier_->members()),
               [this, args = std::move(args)](const Ticket& ticket) { shoal::all_reduce(*carrier_, ticket, args); }};
  });
}

Handle ChannelGroup::broadcast(Broadcast args) {
  SHOAL_CHECK_GE(args.root, 0);
  SHOAL_CHECK_LT(args.root, size());
  auto keep = std::move(args.keep);
  return issue(std::move(keep), [&](uint64_t sequence) {
    return Job{ticket_of(args, sequence, carrier_->members().global(args.root)), traffic_of(args, carrier_->members()),
               [this, args = std::move(args)](const Ticket& ticket) { carrier_->broadcast(ticket, args); }};
  });
}

Handle ChannelGroup::exchange(Exchange args) {
  SHOAL_CHECK((args.received == nullptr) == static_cast<bool>(args.take) || args.slice_nbytes == 0,
              "an exchange is received or taken, one of the two");
  auto keep = std::move(args.keep);
  // What `take` throws is the caller's own: the collective goes on, as the peers do, and the handle gets it.
  const auto thrown = std::make_shared<std::exception_ptr>();
  auto after = [thrown, given = std::move(args.after)] {
    if (*thrown) std::rethrow_exception(*thrown);
    if (given) given();
  };
  return issue(std::move(keep), [&](uint64_t sequence) {
    const Strips strips{static_cast<const std::byte*>(args.slices), args.slice_nbytes * static_cast<size_t>(size()),
                        args.slice_nbytes, size(), static_cast<std::byte*>(args.received)};
    return Job{ticket_of(args, sequence, size()), traffic_of(args, carrier_->members()),
               [this, strips, thrown, take = std::move(args.take)](const Ticket& ticket) {
                 if (!take) return carrier_->exchange(ticket, strips, copying_to_received(*carrier_, strips));
                 carrier_->exchange(ticket, strips, [&](const Exchange::Part& part) {
                   if (*thrown) return;
                   try {
                     take(part);
                   } catch (...) {
                     *thrown = std::current_exception();
                   }
                 });
               },
               std::move(after)};
  });
}

Handle ChannelGroup::barrier(Subject subject) {
  return issue(nullptr, [&](uint64_t sequence) {
    return Job{ticket_of(subject, sequence), Traffic{0, 0, 1},
               [this](const Ticket& ticket) { carrier_->barrier(ticket); }};
  });
}

std::unique_ptr<Group> ChannelGroup::channel(const std::string& name) {
  return std::make_unique<ChannelGroup>(carrier_->channel(name), std::make_shared<Worker>(), wanted_);
}

std::unique_ptr<Group> ChannelGroup::split(const std::string& name, const Parts& parts) {
  std::unique_ptr<Carrier> part;
  std::string problem;  // thrown here, not on the worker: this group is sound
  issue(nullptr, [&](uint64_t sequence) {
    return Job{ticket_of_split(name, parts, sequence), Traffic{0, 0, 1}, [&](const Ticket& ticket) {
                 try {
                   part = carrier_->split(ticket, name, parts);
                 } catch (const WrongParts& wrong) {
                   problem = wrong.problem;
                 }
               }};
  }).wait();
  if (!part) throw WrongParts(fmt::format("comm rank {}", carrier_->global()), problem);
  auto group = std::make_unique<ChannelGroup>(std::move(part), worker_, wanted_);
  group->log_ = log_;
  group->failure_ = failure_;
  return group;
}

std::unique_ptr<Group> ChannelGroup::device_channel(const std::string& name, int device, void* compute_stream,
                                                    Reduce reduce) {
  const ComputeStream compute{device, compute_stream};
  if (auto board = carrier_->open_board_of_gpus(name)) {
    return std::make_unique<ChannelGroup>(std::make_unique<CudaBoardCarrier>(std::move(board), compute));
  }
  const CudaProcessOptions options{carrier_->members().channel_name(name), wanted_ == Transport::nccl, reduce};
  return std::make_unique<ChannelGroup>(make_cuda_process_carrier(channel(name + " of GPUs"), compute, options));
}

std::string ChannelGroup::why_no_host_memory() const {
  if (wanted_ != Transport::nccl) return "";
  return "nccl carries memory of GPUs, and this model is in host memory. Train on a GPU, or use auto.";
}

std::shared_ptr<Slab> ChannelGroup::allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) {
  return carrier_->allocate(nbytes, std::move(ledger), kind);
}

size_t ChannelGroup::staging_nbytes() const { return carrier_->ledger()->line(MemoryKind::staging).nbytes; }

Traffic ChannelGroup::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

void ChannelGroup::run(Job job) {
  Outcome outcome = carry_out(job);
  Joining joining;
  try {
    if (outcome.ran) {
      joining = carrier_->joining();
    } else {
      carrier_->drop();
    }
  } catch (...) {
    outcome.error = std::current_exception();
  }
  const auto state = std::move(job.state);
  job = Job{};  // what the collective held is gone before the caller sees it done
  state->finish(std::move(outcome.error), std::move(joining));
}

ChannelGroup::Outcome ChannelGroup::carry_out(const Job& job) {
  if (const std::exception_ptr failed = failure_->get()) return {failed};
  const auto begin = std::chrono::steady_clock::now();
  try {
    carrier_->come_after(job.mark, job.ticket);
    job.run(job.ticket);
    carried_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
  } catch (...) {
    return {failure_->set(std::current_exception())};
  }
  if (log_->is_on()) {
    // A device channel has only been given the work here.
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    log_->add(job.ticket, carrier_->stream() == nullptr ? took.count() : -1);
  }
  {
    const std::lock_guard lock(mutex_);
    traffic_ += job.traffic;
  }
  try {
    if (job.after) job.after();
  } catch (...) {
    return {std::current_exception(), true};  // the caller's own error: the channel itself is sound
  }
  return {nullptr, true};
}

}  // namespace shoal
