// See gloo_carrier.h.
#include "comm/gloo_carrier.h"

#include <algorithm>
#include <cstring>

#include "comm/reduction.h"
#include "comm/slices.h"

namespace shoal {

namespace {

constexpr int kTicketTag = 1;
constexpr int kPayloadTag = 2;
constexpr size_t kStagingNbytes = size_t{8} << 20;
constexpr size_t kPieceAlignment = 64;
// Up to this size every rank sums all elements itself, which saves a round.
constexpr size_t kSmallNbytes = size_t{16} << 10;

std::byte* bytes(const void* data) { return static_cast<std::byte*>(const_cast<void*>(data)); }

}  // namespace

GlooCarrier::GlooCarrier(std::shared_ptr<GlooWorld> world, const std::string& channel_name)
    : world_(std::move(world)), channel_name_(channel_name), channel_(world_->open(channel_name)) {}

void GlooCarrier::carry(const Ticket& ticket, const std::function<void()>& payload) {
  at_ = describe(ticket, channel_name_);
  deadline_ = std::chrono::steady_clock::now() + world_->timeout();
  try {
    channel_.link->begin();
    compare_tickets(ticket);
    payload();
    channel_.link->end();
  } catch (const LinkBroken& broken) {
    channel_.link->end();
    if (left_) throw error_of({rank(), at_, cause_left(rank())}, rank(), at_);
    throw error_of(world_->settle(broken, channel_, at_), rank(), at_);
  } catch (...) {
    channel_.link->end();
    throw;
  }
}

void GlooCarrier::compare_tickets(const Ticket& mine) {
  std::vector<Ticket> tickets(static_cast<size_t>(size()), mine);
  std::vector<Transfer> sends, receives;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    sends.push_back({peer, bytes(&mine), sizeof(mine), kTicketTag});
    receives.push_back({peer, &tickets[static_cast<size_t>(peer)], sizeof(mine), kTicketTag});
  }
  run(sends, receives);
  for (int peer = 0; peer < size(); ++peer) {
    const std::string how = disagreement(mine, tickets[static_cast<size_t>(peer)], peer, channel_name_);
    if (how.empty()) continue;
    const Failure own{rank(), at_, how};
    world_->fail(own);
    throw error_of(own, rank(), at_);
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
    staging_ = Slab::create(nbytes, Slab::Backing::anonymous, ledger_, MemoryKind::staging);
  }
  return staging_->data();
}

void GlooCarrier::all_gather(const Ticket& ticket, const AllGather& args) {
  carry(ticket, [&] {
    std::byte* whole = bytes(args.whole);
    std::vector<Transfer> sends, receives;
    for (int peer = 0; peer < size(); ++peer) {
      std::byte* slice = whole + static_cast<size_t>(peer) * args.shard_nbytes;
      if (peer == rank()) {
        if (slice != args.shard && args.shard_nbytes > 0) std::memcpy(slice, args.shard, args.shard_nbytes);
        continue;
      }
      sends.push_back({peer, bytes(args.shard), args.shard_nbytes, kPayloadTag});
      receives.push_back({peer, slice, args.shard_nbytes, kPayloadTag});
    }
    run(sends, receives);
  });
}

// Two sets of staging memory: while one piece is summed, the next is on its way.
void GlooCarrier::reduce_own_slice(const Slices& slices, kernels::OrderedMean mean) {
  const size_t own_nbytes = slices.nbytes[static_cast<size_t>(rank())];
  const size_t piece = std::min(slices.piece_nbytes, own_nbytes);
  const auto peers = static_cast<size_t>(size() - 1);
  std::byte* memory = own_nbytes > 0 && peers > 0 ? staging(2 * peers * piece) : nullptr;
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
  std::vector<Transfer> sends;
  const size_t longest = *std::max_element(slices.nbytes.begin(), slices.nbytes.end());
  for (size_t begin = 0; begin < longest; begin += slices.piece_nbytes) {
    for (int peer = 0; peer < size(); ++peer) {
      const size_t nbytes = slices.nbytes[static_cast<size_t>(peer)];
      if (peer == rank() || begin >= nbytes) continue;
      std::byte* from = bytes(slices.data) + slices.begins[static_cast<size_t>(peer)] + begin;
      sends.push_back({peer, from, std::min(slices.piece_nbytes, nbytes - begin), kPayloadTag});
    }
  }
  auto sending = channel_.link->post_sends(sends);

  const size_t in_nbytes = nbytes_of(mean.source_dtype);
  const size_t out_nbytes = nbytes_of(mean.out_dtype);
  std::byte* out = bytes(mean.out);
  const std::byte* own = slices.data + slices.begins[static_cast<size_t>(rank())];
  std::vector<const void*> sources(static_cast<size_t>(size()));
  size_t set = 0;
  for (size_t begin = 0; begin < own_nbytes; begin += piece, set ^= 1) {
    first.wait(deadline_);
    auto next = post_piece(begin + piece, set ^ 1);
    for (int peer = 0; peer < size(); ++peer) {
      sources[static_cast<size_t>(peer)] = peer == rank() ? own + begin : place(set, peer);
    }
    mean.sources = sources.data();
    mean.source_count = size();
    mean.out = out + begin / in_nbytes * out_nbytes;
    mean.numel = static_cast<int64_t>(std::min(piece, own_nbytes - begin) / in_nbytes);
    kernels::ordered_mean(mean);
    first = std::move(next);
  }
  sending.wait(deadline_);
}

void GlooCarrier::reduce_scatter(const Ticket& ticket, const ReduceScatter& args) {
  carry(ticket, [&] {
    Slices slices;
    slices.data = bytes(args.whole);
    const size_t slice_nbytes = static_cast<size_t>(args.shard_numel) * nbytes_of(args.whole_dtype);
    for (int peer = 0; peer < size(); ++peer) {
      slices.begins.push_back(static_cast<size_t>(peer) * slice_nbytes);
      slices.nbytes.push_back(slice_nbytes);
    }
    const size_t whole =
        ticket.piece_nbytes > 0 ? std::min<size_t>(ticket.piece_nbytes, kStagingNbytes) : kStagingNbytes;
    slices.piece_nbytes =
        std::max(kPieceAlignment, whole / 2 / static_cast<size_t>(size()) / kPieceAlignment * kPieceAlignment);
    kernels::OrderedMean mean = mean_of(args);
    reduce_own_slice(slices, mean);
  });
}

void GlooCarrier::all_reduce(const Ticket& ticket, const AllReduce& args) {
  const size_t element = nbytes_of(args.dtype);
  const size_t nbytes = static_cast<size_t>(args.numel) * element;
  kernels::OrderedMean mean;
  mean.source_dtype = mean.out_dtype = args.dtype;
  mean.out = args.data;
  mean.post = args.post;
  carry(ticket, [&] {
    if (nbytes <= kSmallNbytes) {
      std::vector<std::byte> heard(nbytes * static_cast<size_t>(size()));
      std::vector<const void*> sources;
      std::vector<Transfer> sends, receives;
      for (int peer = 0; peer < size(); ++peer) {
        std::byte* from = heard.data() + static_cast<size_t>(peer) * nbytes;
        sources.push_back(peer == rank() ? bytes(args.data) : from);
        if (peer == rank()) continue;
        sends.push_back({peer, args.data, nbytes, kPayloadTag});
        receives.push_back({peer, from, nbytes, kPayloadTag});
      }
      run(sends, receives);
      mean.sources = sources.data();
      mean.source_count = size();
      mean.numel = args.numel;
      kernels::ordered_mean(mean);
      return;
    }
    Slices slices;
    slices.data = bytes(args.data);
    slices.piece_nbytes = kStagingNbytes / 2 / static_cast<size_t>(size()) / kPieceAlignment * kPieceAlignment;
    for (int peer = 0; peer < size(); ++peer) {
      const Slice slice = slice_of(args.numel, size(), peer);
      slices.begins.push_back(static_cast<size_t>(slice.begin) * element);
      slices.nbytes.push_back(static_cast<size_t>(slice.numel) * element);
    }
    const auto me = static_cast<size_t>(rank());
    std::byte* own = bytes(args.data) + slices.begins[me];
    mean.out = own;
    reduce_own_slice(slices, mean);
    std::vector<Transfer> sends, receives;
    for (int peer = 0; peer < size(); ++peer) {
      const auto p = static_cast<size_t>(peer);
      if (peer == rank()) continue;
      sends.push_back({peer, own, slices.nbytes[me], kPayloadTag});
      receives.push_back({peer, bytes(args.data) + slices.begins[p], slices.nbytes[p], kPayloadTag});
    }
    run(sends, receives);
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

std::unique_ptr<Carrier> GlooCarrier::channel(const std::string& name) {
  return std::make_unique<GlooCarrier>(world_, name);
}

std::shared_ptr<Slab> GlooCarrier::allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) {
  return Slab::create(nbytes, Slab::Backing::anonymous, std::move(ledger), kind);
}

void GlooCarrier::interrupt() {
  left_ = true;
  world_->leave(channel_);
}

void GlooCarrier::abort(const std::string& reason) { world_->fail({rank(), "", cause_aborted(rank(), reason)}); }

}  // namespace shoal
