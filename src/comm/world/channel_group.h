// The Group that users see, over any Carrier: gives each collective its sequence number and its ticket, runs them in
// order on a worker, counts the traffic, and keeps each error in the handle it belongs to.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/group/carrier.h"
#include "comm/group/collective_log.h"
#include "comm/group/full_group.h"
#include "comm/group/handle.h"
#include "comm/group/worker.h"

namespace shoal {

class ChannelGroup final : public FullGroup {
 public:
  // A group split from another shares its worker. `wanted`: how its ranks shall talk, for channels of GPUs.
  explicit ChannelGroup(std::unique_ptr<Carrier> carrier, std::shared_ptr<Worker> worker = std::make_shared<Worker>(),
                        Transport wanted = Transport::automatic);
  // Waits for its own collectives, which fail unless the peers are there already; also behind those of groups that
  // share the worker.
  ~ChannelGroup() override;

  int rank() const override { return carrier_->rank(); }
  int size() const override { return carrier_->size(); }
  const std::vector<int>& members() const override { return carrier_->members().ranks(); }
  Handle all_gather(AllGather args) override;
  Handle reduce_scatter(ReduceScatter args) override;
  Handle all_reduce(AllReduce args) override;
  Handle broadcast(Broadcast args) override;
  Handle exchange(Exchange args) override;
  Handle barrier(Subject subject) override;
  std::unique_ptr<Group> channel(const std::string& name) override;
  std::unique_ptr<Group> split(const std::string& name, const Parts& parts) override;
  std::unique_ptr<Group> device_channel(const std::string& name, int device, void* compute_stream,
                                        Reduce reduce) override;
  std::vector<int> hosts() const override { return carrier_->members().hosts(); }
  std::string why_no_host_memory() const override;
  void* stream() const override { return carrier_->stream(); }
  std::shared_ptr<Alarm> alarm() const override { return carrier_->alarm(); }
  std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) override;
  void forget_peer_memory() override { carrier_->forget_peer_memory(); }
  size_t staging_nbytes() const override;
  bool receives() const override { return carrier_->receives(); }
  void abort(const std::string& reason) override { carrier_->abort(reason); }
  std::shared_ptr<Fate> fate() const override { return carrier_->fate(); }
  Traffic traffic() const override;
  void log_collectives(bool on) override { log_->switch_to(on); }
  std::vector<CollectiveRecord> take_collectives() override { return log_->take(); }
  double waited_seconds() const override { return static_cast<double>(waited_->load()) * 1e-9; }
  double carried_seconds() const override { return static_cast<double>(carried_ns_.load()) * 1e-9; }
  double held_seconds() override { return carrier_->held_seconds(); }
  void log_stalls_as(const std::string& what) override { carrier_->log_stalls_as(what); }
  std::string transport_name() const override { return carrier_->transport_name(); }

 private:
  struct Job {
    Ticket ticket;
    Traffic traffic;
    std::function<void(const Ticket&)> run;
    std::function<void()> after = {};
    std::shared_ptr<const void> mark = {};      // see Carrier::mark
    std::shared_ptr<Handle::State> state = {};  // shared with the handle that the caller holds
  };
  // Jobs that the worker still has; it outlives the group, whose end waits for them.
  struct Pending {
    std::mutex mutex;
    std::condition_variable changed;
    int count = 0;
  };

  // The first error, which every later call gets. Groups split from one another share it, as they share the worker:
  // what one of them left undone is what the next would go on from.
  class FirstFailure {
   public:
    std::exception_ptr get() const {
      const std::lock_guard lock(mutex_);
      return error_;
    }
    std::exception_ptr set(std::exception_ptr error) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::move(error);
      return error_;
    }

   private:
    mutable std::mutex mutex_;
    std::exception_ptr error_;
  };

  Handle issue(std::shared_ptr<const void> keep, const std::function<Job(uint64_t sequence)>& make);
  void run(Job job);
  struct Outcome {
    std::exception_ptr error;
    bool ran = false;  // the collective itself; what came after it may have failed
  };
  Outcome carry_out(const Job& job);

  std::unique_ptr<Carrier> carrier_;
  const Transport wanted_;
  mutable std::mutex mutex_;  // of what follows, up to the traffic
  uint64_t issued_ = 0;
  Traffic traffic_;
  std::shared_ptr<FirstFailure> failure_ = std::make_shared<FirstFailure>();
  std::shared_ptr<std::atomic<int64_t>> waited_ = std::make_shared<std::atomic<int64_t>>(0);  // shared with handles
  std::atomic<int64_t> carried_ns_ = 0;                                                       // by the worker
  std::shared_ptr<Pending> pending_ = std::make_shared<Pending>();                            // shared with jobs
  std::shared_ptr<Worker> worker_;  // shared with the groups split from this one
  std::shared_ptr<CollectiveLog> log_ = std::make_shared<CollectiveLog>();  // so is this
};

}  // namespace shoal
