// The whole interface of a Group, for the library's own parts: memory that transports reach, channels for GPUs, and
// what is known of the world's end. Every Group is one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/failure/fate.h"
#include "device/alarm.h"
#include "device/slab.h"
#include "shoal/collective_record.h"
#include "shoal/group.h"

namespace shoal {

class FullGroup : public Group {
 public:
  // A channel for memory of this rank's GPU. Its collectives run on a stream of their own, each after all that
  // `compute_stream` (a cudaStream_t) had been given when it was issued; Handle::wait() then holds back that stream,
  // not the caller. Every rank calls it. `reduce`: who adds, where NCCL carries.
  virtual std::unique_ptr<Group> device_channel(const std::string& name, int device, void* compute_stream,
                                                Reduce reduce = Reduce::exact) = 0;
  // The number of the host on which each rank of the world stands, by their numbers there; empty: all on one.
  virtual std::vector<int> hosts() const { return {}; }
  // Why the ranks shall not talk about host memory of a model (notes they may); empty: they may.
  virtual std::string why_no_host_memory() const { return ""; }
  // The stream of such a channel, on which ReduceScatter::after runs; null in host memory. Groups split from it share
  // it.
  virtual void* stream() const { return nullptr; }
  // Raised when the collectives of such a channel cannot end; whoever waits for the GPU behind them heeds it. Null
  // where they wait for nobody once they are on the stream.
  virtual std::shared_ptr<Alarm> alarm() const { return nullptr; }

  // Memory that the transport reads from peers without a copy, where it can; plain memory otherwise.
  // Collectives accept any other memory too, and stage it where they must.
  virtual std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) = 0;

  // Unmaps what this rank has mapped of its peers' memory, so that what they freed is really gone. The next
  // collectives map again what they need. Peers' freed memory is also let go in the course of later collectives.
  virtual void forget_peer_memory() {}

  // What the transport holds itself to copy memory through that it cannot reach otherwise.
  virtual size_t staging_nbytes() const { return 0; }

  // Whether what ranks reduce is received in memory of the transport first, which staging_nbytes() counts.
  virtual bool receives() const { return false; }

  // What this world knows of ranks that failed or died; null where nobody else is there.
  virtual std::shared_ptr<Fate> fate() const { return nullptr; }

  // Whether each collective is put down, also of groups split from this one; and what was put down since the last time.
  virtual void log_collectives(bool) {}
  virtual std::vector<CollectiveRecord> take_collectives() { return {}; }

  // Seconds that callers have been held up in wait() so far.
  virtual double waited_seconds() const { return 0; }
  // Seconds that the GPU's stream on which the rank computes has stood still for this device channel's collectives so
  // far: of those that it has come past, groups split from it included.
  virtual double held_seconds() { return 0; }
  // What it stands still for, as a trace of waits calls it. Until then a trace has nothing of it.
  virtual void log_stalls_as(const std::string&) {}
  // Seconds that the collectives of this channel have been under way on its worker so far, waits for ranks that came
  // later among them. In host memory alone: of a device channel the worker only gives them to the GPU.
  virtual double carried_seconds() const { return 0; }
};

inline FullGroup& full(Group& group) { return static_cast<FullGroup&>(group); }
inline const FullGroup& full(const Group& group) { return static_cast<const FullGroup&>(group); }

}  // namespace shoal
