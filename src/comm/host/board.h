// Where ranks that can read each other's memory meet: each puts up its ticket and says where its buffer is, waits for
// all the others, reads what it needs, and departs when everybody has. Beneath BoardCarrier; implemented for threads
// and for processes of one host.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "comm/failure/fate.h"
#include "comm/group/members.h"
#include "comm/group/ticket.h"
#include "device/slab.h"

namespace shoal {

class Board {
 public:
  virtual ~Board() = default;
  // Those who meet here. Ranks below are counted as they do.
  virtual const Members& members() const = 0;
  int rank() const { return members().rank(); }
  int size() const { return members().size(); }
  virtual std::string channel_name() const = 0;

  // Puts up this rank's ticket and the place of its buffer (null: it brings none), and waits until every rank has.
  // `staged`: the buffer is a copy in pieces, see BoardCarrier. Throws when the world has failed or fails meanwhile.
  virtual void arrive(const Ticket& ticket, const std::byte* buffer, bool staged) = 0;
  // What a rank put up. Valid between arrive and depart.
  virtual Ticket ticket_of(int rank) const = 0;
  virtual bool staged(int rank) const = 0;
  // The rank's buffer, readable by this rank until depart.
  virtual const std::byte* buffer_of(int rank) = 0;
  // Says that this rank has read all it wants, and waits until every rank has. Buffers may be reused afterwards.
  virtual void depart() = 0;
  // Instead of depart, when this rank failed in between: lets the peers go, does not wait.
  virtual void withdraw() noexcept = 0;

  // Whether all ranks are threads of this process, so that a pointer means the same to each of them.
  virtual bool in_one_process() const { return false; }
  // Whether peers can read this memory where it is.
  virtual bool reaches(const std::byte* data, size_t nbytes) = 0;
  // Memory that peers can read, at least this large; the same memory grows from call to call.
  virtual std::byte* staging(size_t nbytes) = 0;
  virtual std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) = 0;
  virtual void forget_peer_memory() = 0;
  virtual std::shared_ptr<Ledger> ledger() const = 0;

  // The next board of that name for some of the world's ranks, of which this is one.
  virtual std::unique_ptr<Board> open(const std::string& name, const Members& members) = 0;
  // Writes the failure down for every rank and channel, unless one is there already, and wakes whoever waits.
  virtual void fail(const Failure& failure) = 0;
  virtual void leave() = 0;
  virtual std::shared_ptr<Fate> fate() const = 0;
  virtual std::string transport_name() const = 0;
};

}  // namespace shoal
