// See gloo_carrier.h.
#include "comm/host/gloo_carrier.h"

#include <algorithm>
#include <cstring>

namespace shoal {

namespace {

constexpr int kTicketTag = 1;
constexpr int kPayloadTag = 2;
constexpr size_t kStagingNbytes = size_t{8} << 20;
constexpr size_t kPieceAlignment = 64;
// A strip that goes from host to host and is passed on there: in pieces, so that both happen at a time. A small one
// goes to each rank by itself, which is one step instead of two.
constexpr int kStripTag = 16;  // and the number of its owner
constexpr size_t kPassedPieceNbytes = size_t{1} << 20;
constexpr size_t kLeastPassedNbytes = size_t{32} << 10;
// How much longer a rank waits for one that waits itself: who is nearest to the rank that is late shall name it.
constexpr auto kPassedGrace = std::chrono::milliseconds(2000);

std::byte* bytes(const void* data) { return static_cast<std::byte*>(const_cast<void*>(data)); }

}  // namespace

GlooCarrier::GlooCarrier(std::shared_ptr<GlooWorld> world, const Members& members, const std::string& channel_name)
    : Carrier({members, members.channel_name(channel_name), "gloo", fate_of(world)}),
      world_(std::move(world)),
      channel_(world_->open(channel_name, members)) {
  std::vector<int> host_of;
  for (const int member : members.ranks()) host_of.push_back(world_->host_of(member));
  has_paths_ = some_host_has_several(host_of);
  if (has_paths_) paths_ = gather_paths(host_of, rank());
}

void GlooCarrier::carry(const Ticket& ticket, const std::function<void()>& payload) {
  at_ = describe(ticket, channel_name());
  deadline_ = std::chrono::steady_clock::now() + world_->timeout();
  try {
    channel_.link->begin();
    compare_tickets(ticket);
    payload();
    channel_.link->end();
  } catch (const LinkBroken& broken) {
    channel_.link->end();
    if (left_) throw error_of({global(), at_, cause_left(global())}, global(), at_);
    throw error_of(world_->settle(broken, channel_, at_), global(), at_);
  } catch (...) {
    channel_.link->end();
    throw;
  }
}

void GlooCarrier::compare_tickets(const Ticket& mine) {
  tickets_.assign(static_cast<size_t>(size()), mine);
  std::vector<Transfer> sends, receives;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    sends.push_back({peer, bytes(&mine), sizeof(mine), kTicketTag});
    receives.push_back({peer, &tickets_[peer], sizeof(mine), kTicketTag});
  }
  run(sends, receives);
  for (int peer = 0; peer < size(); ++peer) {
    const std::string how = disagreement(mine, tickets_[peer], members().global(peer), channel_name());
    if (how.empty()) continue;
    const Failure own{global(), at_, how};
    world_->fail(own);
    throw error_of(own, global(), at_);
  }
}

void GlooCarrier::run(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives) {
  auto receiving = channel_.link->post_receives(receives);
  auto sending = channel_.link->post_sends(sends);
  receiving.wait(deadline_);
  sending.wait(deadline_);
}

std::byte* GlooCarrier::staging(size_t nbytes) {
  if (!staging_ || staging_->nbytes() < nbytes) {
    staging_.reset();
    staging_ = Slab::create(nbytes, Slab::Backing::anonymous, ledger(), MemoryKind::staging);
  }
  return staging_->data();
}

void GlooCarrier::all_gather(const Ticket& ticket, const Gather& args) {
  carry(ticket, [&] {
    if (args.place(rank()) != args.own) copy(args.place(rank()), args.own, args.nbytes_at(rank()));
    size_t largest = 0;
    for (int peer = 0; peer < size(); ++peer) largest = std::max(largest, args.nbytes_at(peer));
    if (has_paths_ && largest >= kLeastPassedNbytes) {
      gather_by_hosts(args);
    } else {
      gather_at_once(args);
    }
  });
}

void GlooCarrier::gather_at_once(const Gather& args) {
  std::vector<Transfer> sends, receives;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    sends.push_back({peer, bytes(args.own), args.nbytes_at(rank()), kPayloadTag});
    receives.push_back({peer, args.place(peer), args.nbytes_at(peer), kPayloadTag});
  }
  run(sends, receives);
}

void GlooCarrier::gather_by_hosts(const Gather& args) {
  // Pieces of an owner's strip for these ranks, from or into `data`.
  const auto pieces = [&](int owner, std::byte* data, size_t begin, size_t end, const std::vector<int>& peers) {
    std::vector<Transfer> transfers;
    for (; begin < end; begin += kPassedPieceNbytes) {
      const size_t nbytes = std::min(kPassedPieceNbytes, end - begin);
      for (const int peer : peers) transfers.push_back({peer, data + begin, nbytes, kStripTag + owner});
    }
    return transfers;
  };
  std::vector<std::vector<GlooLink::Posted>> passed(static_cast<size_t>(size()));  // by owner, a piece each
  std::vector<Transfer> near, far;  // whole strips from their owners, and those that another passes on
  size_t most_pieces = 0;
  for (int owner = 0; owner < size(); ++owner) {
    if (owner == rank()) continue;
    const size_t nbytes = args.nbytes_at(owner);
    auto transfers = pieces(owner, args.place(owner), 0, nbytes, {paths_.from[owner]});
    if (!paths_.pass_on[owner].empty()) {
      for (const Transfer& transfer : transfers) {
        passed[owner].push_back(channel_.link->post_receives({transfer}));
      }
      most_pieces = std::max(most_pieces, transfers.size());
      continue;
    }
    auto& list = paths_.from[owner] == owner ? near : far;
    list.insert(list.end(), transfers.begin(), transfers.end());
  }
  auto receiving_near = channel_.link->post_receives(near), receiving_far = channel_.link->post_receives(far);
  std::vector<GlooLink::Posted> sending;
  sending.push_back(channel_.link->post_sends(pieces(rank(), bytes(args.own), 0, args.nbytes_at(rank()), paths_.to)));
  for (size_t piece = 0; piece < most_pieces; ++piece) {
    for (int owner = 0; owner < size(); ++owner) {
      if (piece >= passed[owner].size()) continue;
      passed[owner][piece].wait(deadline_);
      const size_t begin = piece * kPassedPieceNbytes;
      const size_t end = std::min(begin + kPassedPieceNbytes, args.nbytes_at(owner));
      sending.push_back(channel_.link->post_sends(pieces(owner, args.place(owner), begin, end, paths_.pass_on[owner])));
    }
  }
  receiving_near.wait(deadline_);
  receiving_far.wait(deadline_ + kPassedGrace);
  for (auto& sent : sending) sent.wait(deadline_ + kPassedGrace);
}

void GlooCarrier::exchange(const Ticket& ticket, const Strips& strips, const Take& take) {
  // The same on every rank, as it follows from what the tickets agree on.
  const size_t whole = ticket.piece_nbytes > 0 ? std::min<size_t>(ticket.piece_nbytes, kStagingNbytes) : kStagingNbytes;
  const size_t piece_nbytes =
      std::max(kPieceAlignment, whole / 2 / static_cast<size_t>(size()) / kPieceAlignment * kPieceAlignment);
  carry(ticket, [&] {
    if (strips.received != nullptr) {
      take_whole(strips, piece_nbytes, take);
    } else {
      take_in_pieces(strips, piece_nbytes, take);
    }
  });
}

// Posts the sends of every peer's strip in pieces, and waits for them when `receive` is through.
void GlooCarrier::send_strips(const Strips& strips, size_t piece_nbytes, const std::function<void()>& receive) {
  std::vector<Transfer> sends;
  for (size_t begin = 0; begin < strips.strip_nbytes; begin += piece_nbytes) {
    for (int peer = 0; peer < size(); ++peer) {
      const int strip = strips.count == 1 ? 0 : peer;
      const size_t nbytes = strips.nbytes_at(strip);
      if (peer == rank() || begin >= nbytes) continue;
      std::byte* from = bytes(strips.data) + static_cast<size_t>(strip) * strips.strip_nbytes + begin;
      sends.push_back({peer, from, std::min(piece_nbytes, nbytes - begin), kPayloadTag});
    }
  }
  auto sending = channel_.link->post_sends(sends);
  receive();
  sending.wait(deadline_);
}

void GlooCarrier::take_whole(const Strips& strips, size_t piece_nbytes, const Take& take) {
  const int strip = strips.count == 1 ? 0 : rank();
  const size_t own_nbytes = strips.nbytes_at(strip);
  std::vector<const void*> sources(static_cast<size_t>(size()));
  std::vector<Transfer> receives;
  for (int peer = 0; peer < size(); ++peer) {
    std::byte* to = strips.received + static_cast<size_t>(peer) * strips.strip_nbytes;
    if (peer == rank()) to = bytes(strips.data) + static_cast<size_t>(strip) * strips.strip_nbytes;
    sources[peer] = to;
    for (size_t begin = 0; begin < own_nbytes && peer != rank(); begin += piece_nbytes) {
      receives.push_back({peer, to + begin, std::min(piece_nbytes, own_nbytes - begin), kPayloadTag});
    }
  }
  auto receiving = channel_.link->post_receives(receives);
  send_strips(strips, piece_nbytes, [&] {
    receiving.wait(deadline_);
    if (own_nbytes > 0) take({0, own_nbytes, sources.data()});
  });
}

// Two sets of staging memory: while one piece is taken, the next is on its way.
void GlooCarrier::take_in_pieces(const Strips& strips, size_t piece_nbytes, const Take& take) {
  const int strip = strips.count == 1 ? 0 : rank();
  const size_t own_nbytes = strips.nbytes_at(strip);
  const size_t piece = std::min(piece_nbytes, own_nbytes);
  const auto peers = static_cast<size_t>(size() - 1);
  std::byte* memory = nullptr;
  if (strips.count == 1) {
    read_by_all_.resize(2 * peers * piece);
    memory = read_by_all_.data();
  } else if (own_nbytes > 0 && peers > 0) {
    memory = staging(2 * peers * piece);
  }
  const auto place = [&](size_t set, int peer) {
    const auto slot = static_cast<size_t>(peer < rank() ? peer : peer - 1);
    return memory + (set * peers + slot) * piece;
  };
  const auto post_piece = [&](size_t begin, size_t set) {
    std::vector<Transfer> receives;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank() || begin >= own_nbytes) continue;
      receives.push_back({peer, place(set, peer), std::min(piece, own_nbytes - begin), kPayloadTag});
    }
    return channel_.link->post_receives(receives);
  };

  auto first = post_piece(0, 0);
  send_strips(strips, piece_nbytes, [&] {
    const std::byte* own = strips.data + static_cast<size_t>(strip) * strips.strip_nbytes;
    std::vector<const void*> sources(static_cast<size_t>(size()));
    size_t set = 0;
    for (size_t begin = 0; begin < own_nbytes; begin += piece, set ^= 1) {
      first.wait(deadline_);
      auto next = post_piece(begin + piece, set ^ 1);
      for (int peer = 0; peer < size(); ++peer) {
        sources[peer] = peer == rank() ? own + begin : place(set, peer);
      }
      take({begin, std::min(piece, own_nbytes - begin), sources.data()});
      first = std::move(next);
    }
  });
}

void GlooCarrier::broadcast(const Ticket& ticket, const Broadcast& args) {
  carry(ticket, [&] {
    std::vector<Transfer> sends, receives;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank() && rank() == args.root) sends.push_back({peer, args.data, args.nbytes, kPayloadTag});
    }
    if (rank() != args.root) receives.push_back({args.root, args.data, args.nbytes, kPayloadTag});
    run(sends, receives);
  });
}

void GlooCarrier::barrier(const Ticket& ticket) {
  carry(ticket, [] {});
}

std::unique_ptr<Carrier> GlooCarrier::open(const std::string& name, const Members& members, Lane) {
  return std::make_unique<GlooCarrier>(world_, members, name);
}

void GlooCarrier::interrupt() {
  left_ = true;
  world_->leave(channel_);
}

}  // namespace shoal
