// How bytes travel beneath a Group: what a transport implements. Four blocking verbs, called by one worker thread in
// order, so an implementation needs no queue and no lock of its own for them; interrupt() and abort() come from other
// threads. Sums are made above it, by reduction.h. The caller has filled in the Ticket; an implementation finds ranks
// that disagree by comparing tickets.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/failure/fate.h"
#include "comm/group/handle.h"
#include "comm/group/members.h"
#include "comm/group/strips.h"
#include "comm/group/ticket.h"
#include "device/alarm.h"
#include "device/slab.h"
#include "kernels/reduce.h"
#include "shoal/group.h"

namespace shoal {

class Board;

// Of a transport that makes sums by itself, or has others make them.
class OwnSums {
 public:
  virtual ~OwnSums() = default;
  virtual void reduce_scatter(const Ticket& ticket, const ReduceScatter& args) = 0;
  virtual void all_reduce(const Ticket& ticket, const AllReduce& args) = 0;
};

class Carrier {
 public:
  // Who a carrier is; what it says of itself.
  struct About {
    Members members;
    std::string channel_name;  // for messages; "" for the main one
    std::string transport_name;
    std::shared_ptr<Fate> fate;                                   // null: nobody else is there
    std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();  // counts memory that the transport itself holds
  };
  explicit Carrier(About about) : about_(std::move(about)) {}
  virtual ~Carrier() = default;  // after interrupt(), with no collective in flight

  const Members& members() const { return about_.members; }
  int rank() const { return about_.members.rank(); }
  int size() const { return about_.members.size(); }
  int global() const { return about_.members.global(); }  // this rank's number in the world
  const std::string& channel_name() const { return about_.channel_name; }
  const std::string& transport_name() const { return about_.transport_name; }
  const std::shared_ptr<Fate>& fate() const { return about_.fate; }
  const std::shared_ptr<Ledger>& ledger() const { return about_.ledger; }

  // Each throws shoal::Error when the world cannot go on, and throws the same one ever after.
  // Hands the strips that the ranks brought for this one to `take`, in parts, in order of their begin.
  virtual void exchange(const Ticket& ticket, const Strips& strips, const Take& take) = 0;
  virtual void all_gather(const Ticket& ticket, const Gather& args) = 0;
  virtual void broadcast(const Ticket& ticket, const Broadcast& args) = 0;
  virtual void barrier(const Ticket& ticket) = 0;
  // Null: the ordered sum of reduction.h.
  virtual OwnSums* own_sums() { return nullptr; }

  // Whether strips of an exchange come to lie in memory of this carrier's, which its ledger counts.
  virtual bool receives() const { return false; }

  // Work on the memory that is carried; host memory, unless a carrier for GPUs says otherwise.
  virtual void sum(const kernels::OrderedFold& fold);
  virtual void copy(void* to, const void* from, size_t nbytes);
  virtual std::byte* scratch(size_t nbytes);  // the same memory grows from call to call
  // Up to this size every rank sums all elements of an all-reduce by itself, which saves a round.
  virtual size_t most_nbytes_summed_alone() const { return size_t{16} << 10; }

  // Another carrier over the same ranks, and over those of this rank's part. Every rank calls them.
  virtual std::unique_ptr<Carrier> channel(const std::string& name);
  virtual std::unique_ptr<Carrier> split(const Ticket& ticket, const std::string& name, const Parts& parts);

  virtual std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind);
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
  // See FullGroup. From any thread.
  virtual double held_seconds() { return 0; }
  virtual void log_stalls_as(const std::string&) {}
  virtual std::shared_ptr<Alarm> alarm() const { return nullptr; }
  // Where the same ranks meet for memory of a GPU that they all reach; null where bytes must leave the process.
  virtual std::shared_ptr<Board> open_board_of_gpus(const std::string&) { return nullptr; }

  // This rank leaves the channel: wakes the collective in flight, if any, and tells waiting peers.
  virtual void interrupt() {}
  // Wakes every rank on every channel of this world.
  virtual void abort(const std::string& reason);

 protected:
  // Whether a carrier has a stream of its own, or that of the one it was split from.
  enum class Lane { own, shared };
  // What channel() and split() open.
  virtual std::unique_ptr<Carrier> open(const std::string& name, const Members& members, Lane lane);

 private:
  const About about_;
  std::vector<std::byte> scratch_;
};

}  // namespace shoal
