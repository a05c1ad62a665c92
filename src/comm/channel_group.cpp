// See channel_group.h.
#include "comm/channel_group.h"

#include <utility>

#include "base/check.h"
#include "comm/cuda_process_carrier.h"
#include "comm/traffic.h"
#include "shoal/error.h"

namespace shoal {

ChannelGroup::ChannelGroup(std::unique_ptr<Carrier> carrier) : carrier_(std::move(carrier)) {
  worker_ = std::thread([this] { work(); });
}

ChannelGroup::~ChannelGroup() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  carrier_->interrupt();
  changed_.notify_all();
  worker_.join();
}

Handle ChannelGroup::issue(std::shared_ptr<const void> keep, const std::function<Job(uint64_t)>& make) {
  auto state = std::make_shared<Handle::State>();
  state->keep = std::move(keep);
  state->waited = waited_;
  const std::shared_ptr<const void> mark = carrier_->mark();
  {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    Job job = make(++issued_);
    job.state = state;
    job.mark = mark;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
  return Handle(state);
}

Handle ChannelGroup::all_gather(AllGather args) {
  auto keep = std::move(args.keep);
  auto after = std::move(args.after);
  return issue(std::move(keep), [&](uint64_t sequence) {
    return Job{ticket_of(args, sequence),
               traffic_of(args, size()),
               [this, args = std::move(args)](const Ticket& ticket) { carrier_->all_gather(ticket, args); },
               std::move(after),
               nullptr,
               nullptr};
  });
}

Handle ChannelGroup::reduce_scatter(ReduceScatter args) {
  SHOAL_CHECK_GE(args.shard_numel, 0);
  SHOAL_CHECK_GE(args.piece_numel, 0);
  auto keep = std::move(args.keep);
  auto after = std::move(args.after);
  return issue(std::move(keep), [&](uint64_t sequence) {
    return Job{ticket_of(args, sequence, size()),
               traffic_of(args, size()),
               [this, args = std::move(args)](const Ticket& ticket) { carrier_->reduce_scatter(ticket, args); },
               std::move(after),
               nullptr,
               nullptr};
  });
}

Handle ChannelGroup::all_reduce(AllReduce args) {
  SHOAL_CHECK_GE(args.numel, 0);
  auto keep = std::move(args.keep);
  return issue(std::move(keep), [&](uint64_t sequence) {
    return Job{ticket_of(args, sequence),
               traffic_of(args, size(), rank()),
               [this, args = std::move(args)](const Ticket& ticket) { carrier_->all_reduce(ticket, args); },
               nullptr,
               nullptr,
               nullptr};
  });
}

Handle ChannelGroup::broadcast(Broadcast args) {
  SHOAL_CHECK_GE(args.root, 0);
  SHOAL_CHECK_LT(args.root, size());
  auto keep = std::move(args.keep);
  return issue(std::move(keep), [&](uint64_t sequence) {
    return Job{ticket_of(args, sequence),
               traffic_of(args, size(), rank()),
               [this, args = std::move(args)](const Ticket& ticket) { carrier_->broadcast(ticket, args); },
               nullptr,
               nullptr,
               nullptr};
  });
}

Handle ChannelGroup::barrier(Subject subject) {
  return issue(nullptr, [&](uint64_t sequence) {
    return Job{ticket_of(subject, sequence),
               Traffic{0, 0, 1},
               [this](const Ticket& ticket) { carrier_->barrier(ticket); },
               nullptr,
               nullptr,
               nullptr};
  });
}

std::unique_ptr<Group> ChannelGroup::channel(const std::string& name) {
  return std::make_unique<ChannelGroup>(carrier_->channel(name));
}

std::unique_ptr<Group> ChannelGroup::device_channel(const std::string& name, int device, void* compute_stream) {
  const ComputeStream compute{device, compute_stream};
  std::unique_ptr<Carrier> carrier = carrier_->device_carrier(name, compute);
  if (!carrier) carrier = make_cuda_process_carrier(channel(name + " of GPUs"), compute, name);
  return std::make_unique<ChannelGroup>(std::move(carrier));
}

std::shared_ptr<Slab> ChannelGroup::allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) {
  return carrier_->allocate(nbytes, std::move(ledger), kind);
}

size_t ChannelGroup::staging_nbytes() const { return carrier_->ledger()->line(MemoryKind::staging).nbytes; }

Traffic ChannelGroup::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

void ChannelGroup::work() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !jobs_.empty() || leaving_; });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
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
}

ChannelGroup::Outcome ChannelGroup::carry_out(const Job& job) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return {failure_};
  }
  try {
    carrier_->come_after(job.mark, job.ticket);
    job.run(job.ticket);
  } catch (const Error&) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    return {failure_};
  } catch (...) {
    return {std::current_exception()};
  }
  {
    const std::lock_guard lock(mutex_);
    traffic_.sent_nbytes += job.traffic.sent_nbytes;
    traffic_.received_nbytes += job.traffic.received_nbytes;
    traffic_.collectives += job.traffic.collectives;
  }
  try {
    if (job.after) job.after();
  } catch (...) {
    return {std::current_exception(), true};  // the caller's own error: the channel itself is sound
  }
  return {nullptr, true};
}

}  // namespace shoal
