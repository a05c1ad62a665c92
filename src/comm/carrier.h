// The blocking collectives beneath a Group: what a transport implements. Called by one worker thread, in order, so an
// implementation needs no queue and no lock of its own for them; interrupt() and abort() come from other threads.
// The caller has filled in the Ticket; an implementation finds ranks that disagree by comparing tickets.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/fate.h"
#include "comm/handle.h"
#include "comm/ticket.h"
#include "device/alarm.h"
#include "device/slab.h"
#include "shoal/group.h"

namespace shoal {

// Where a rank computes on a GPU.
struct ComputeStream {
  int device = 0;
  void* stream = nullptr;
};

class Carrier {
 public:
  virtual ~Carrier() = default;  // after interrupt(), with no collective in flight

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Each throws shoal::Error when the world cannot go on, and throws the same one ever after.
  virtual void all_gather(const Ticket& ticket, const AllGather& args) = 0;
  virtual void reduce_scatter(const Ticket& ticket, const ReduceScatter& args) = 0;
  virtual void all_reduce(const Ticket& ticket, const AllReduce& args) = 0;
  virtual void broadcast(const Ticket& ticket, const Broadcast& args) = 0;
  virtual void barrier(const Ticket& ticket) = 0;

  virtual std::unique_ptr<Carrier> channel(const std::string& name) = 0;
  virtual std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) = 0;
  virtual void forget_peer_memory() {}

  // A carrier for a GPU runs its collectives on a stream. In the caller's thread, when a collective is issued: a mark
  // behind what it must come after. In the worker: have the stream come after the mark; then, when the collective has
  // been given to the stream, what a caller does to come after it. A carrier for host memory has none of
  // this.
  virtual std::shared_ptr<const void> mark() { return nullptr; }
  virtual void come_after(const std::shared_ptr<const void>&, const Ticket&) {}
  virtual Joining joining() { return {}; }
  virtual void drop() {}  // instead of joining(): the collective failed
  virtual void* stream() const { return nullptr; }
  // See Group. From any thread.
  virtual double held_seconds() { return 0; }
  virtual void log_holds_as(const std::string&) {}
  virtual std::shared_ptr<Alarm> alarm() const { return nullptr; }
  // A carrier over the same ranks for memory of a GPU; null where bytes must leave the process to reach them.
  virtual std::unique_ptr<Carrier> device_carrier(const std::string&, const ComputeStream&) { return nullptr; }

  // This rank leaves the channel: wakes the collective in flight, if any, and tells waiting peers.
  virtual void interrupt() = 0;
  // Wakes every rank on every channel of this world.
  virtual void abort(const std::string& reason) = 0;
  virtual std::shared_ptr<Fate> fate() const { return nullptr; }

  virtual std::string channel_name() const = 0;  // "" for the main one
  virtual std::string transport_name() const = 0;
  // Memory that the transport itself holds, by kind.
  virtual std::shared_ptr<Ledger> ledger() const = 0;
};

}  // namespace shoal
