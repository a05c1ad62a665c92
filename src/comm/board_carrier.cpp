// See board_carrier.h.
#include "comm/board_carrier.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "comm/cuda_board_carrier.h"
#include "comm/reduction.h"
#include "comm/slices.h"
#include "kernels/reduce.h"

namespace shoal {

namespace {

constexpr size_t kStagingNbytes = size_t{8} << 20;
constexpr size_t kPieceAlignment = 64;
// Up to this size every rank sums all elements itself, which saves a round.
constexpr size_t kSmallNbytes = size_t{16} << 10;

// Bytes of each strip that one round covers: the same on every rank, as it follows from what the tickets agree on.
size_t piece_nbytes(const Ticket& ticket, int strips) {
  const size_t whole = ticket.piece_nbytes > 0 ? std::min<size_t>(ticket.piece_nbytes, kStagingNbytes) : kStagingNbytes;
  return std::max(kPieceAlignment, whole / static_cast<size_t>(strips) / kPieceAlignment * kPieceAlignment);
}

const std::byte* bytes(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

void compare_tickets(Board& board, const Ticket& mine) {
  for (int peer = 0; peer < board.size(); ++peer) {
    const std::string how = disagreement(mine, board.ticket_of(peer), peer, board.channel_name());
    if (how.empty()) continue;
    const Failure failure{board.rank(), describe(mine, board.channel_name()), how};
    board.fail(failure);
    throw error_of(failure, board.rank(), failure.at);
  }
}

void BoardCarrier::stage(const Window& window, const Round& round) {
  std::byte* staging = board_->staging(round.piece_nbytes * static_cast<size_t>(window.strips));
  for (int strip = 0; strip < window.strips; ++strip) {
    const size_t from = static_cast<size_t>(strip) * window.strip_nbytes + round.begin;
    if (from >= window.nbytes) break;
    const size_t count = std::min(round.nbytes, window.nbytes - from);
    std::memcpy(staging + static_cast<size_t>(strip) * round.piece_nbytes, window.data + from, count);
  }
}

const std::byte* BoardCarrier::source(int rank, int strip, const Round& round) {
  const std::byte* base = board_->buffer_of(rank);
  if (board_->staged(rank)) return base + static_cast<size_t>(strip) * round.piece_nbytes;
  return base + static_cast<size_t>(strip) * round.strip_nbytes + round.begin;
}

// See [Note: windows, strips and pieces].
void BoardCarrier::exchange(const Ticket& ticket, const Window& window, const std::function<void(const Round&)>& read) {
  const bool staged = window.nbytes > 0 && !board_->reaches(window.data, window.nbytes);
  Round round;
  round.strip_nbytes = window.strip_nbytes;
  round.piece_nbytes = std::min(piece_nbytes(ticket, window.strips), window.strip_nbytes);
  do {
    round.nbytes = std::min(round.piece_nbytes, window.strip_nbytes - round.begin);
    if (staged) stage(window, round);
    const std::byte* offered = window.nbytes == 0 ? nullptr : staged ? board_->staging(0) : window.data;
    board_->arrive(ticket, offered, staged);
    compare_tickets(*board_, ticket);
    try {
      bool in_rounds = false;
      for (int peer = 0; peer < size(); ++peer) in_rounds = in_rounds || board_->staged(peer);
      if (!in_rounds) round.nbytes = window.strip_nbytes;
      read(round);
    } catch (...) {
      board_->withdraw();
      throw;
    }
    board_->depart();
    round.begin += round.nbytes;
  } while (round.begin < window.strip_nbytes);
}

void BoardCarrier::all_gather(const Ticket& ticket, const AllGather& args) {
  std::byte* whole = bytes(args.whole);
  exchange(ticket, {bytes(args.shard), args.shard_nbytes, args.shard_nbytes, 1}, [&](const Round& round) {
    for (int step = 0; step < size() && round.nbytes > 0; ++step) {
      const int peer = (rank() + step) % size();  // each rank begins elsewhere, so they do not all read the same memory
      std::byte* to = whole + static_cast<size_t>(peer) * args.shard_nbytes + round.begin;
      const std::byte* from = peer == rank() ? bytes(args.shard) + round.begin : source(peer, 0, round);
      if (to != from) std::memcpy(to, from, round.nbytes);
    }
  });
}

void BoardCarrier::reduce_scatter(const Ticket& ticket, const ReduceScatter& args) {
  const size_t in_nbytes = nbytes_of(args.whole_dtype);
  const size_t strip_nbytes = static_cast<size_t>(args.shard_numel) * in_nbytes;
  const Window window{bytes(args.whole), strip_nbytes * static_cast<size_t>(size()), strip_nbytes, size()};
  exchange(ticket, window, [&](const Round& round) {
    std::vector<const void*> sources;
    for (int peer = 0; peer < size(); ++peer) {
      sources.push_back(peer == rank()     ? window.data + static_cast<size_t>(rank()) * strip_nbytes + round.begin
                        : round.nbytes > 0 ? source(peer, rank(), round)
                                           : nullptr);
    }
    kernels::OrderedMean mean = mean_of(args);
    mean.sources = sources.data();
    mean.source_count = size();
    mean.out = bytes(args.shard) + round.begin / in_nbytes * nbytes_of(args.shard_dtype);
    mean.numel = static_cast<int64_t>(round.nbytes / in_nbytes);
    kernels::ordered_mean(mean);
  });
}

void BoardCarrier::all_reduce(const Ticket& ticket, const AllReduce& args) {
  const size_t element = nbytes_of(args.dtype);
  const size_t nbytes = static_cast<size_t>(args.numel) * element;
  kernels::OrderedMean mean;
  mean.source_count = size();
  mean.source_dtype = mean.out_dtype = args.dtype;
  mean.post = args.post;

  if (nbytes <= kSmallNbytes) {
    std::vector<std::byte> result(nbytes);
    exchange(ticket, {bytes(args.data), nbytes, nbytes, 1}, [&](const Round& round) {
      std::vector<const void*> sources;
      for (int peer = 0; peer < size(); ++peer) {
        sources.push_back(peer == rank() || nbytes == 0 ? bytes(args.data) + round.begin : source(peer, 0, round));
      }
      mean.sources = sources.data();
      mean.out = result.data() + round.begin;
      mean.numel = static_cast<int64_t>(round.nbytes / element);
      kernels::ordered_mean(mean);
    });
    if (nbytes > 0) std::memcpy(args.data, result.data(), nbytes);
    return;
  }

  // First round: each rank sums its slice, in place; nobody else reads that slice of its memory.
  const size_t strip_nbytes = static_cast<size_t>(slice_stride(args.numel, size())) * element;
  const size_t own_nbytes = static_cast<size_t>(slice_of(args.numel, size(), rank()).numel) * element;
  exchange(ticket, {bytes(args.data), nbytes, strip_nbytes, size()}, [&](const Round& round) {
    if (round.begin >= own_nbytes) return;
    std::vector<const void*> sources;
    std::byte* own = bytes(args.data) + static_cast<size_t>(rank()) * strip_nbytes + round.begin;
    for (int peer = 0; peer < size(); ++peer) {
      sources.push_back(peer == rank() ? own : source(peer, rank(), round));
    }
    mean.sources = sources.data();
    mean.out = own;
    mean.numel = static_cast<int64_t>(std::min(round.nbytes, own_nbytes - round.begin) / element);
    kernels::ordered_mean(mean);
  });
  // Second round: each rank copies the peers' summed slices; nobody else reads those slices of its memory.
  const std::byte* own = bytes(args.data) + static_cast<size_t>(slice_of(args.numel, size(), rank()).begin) * element;
  exchange(ticket, {own, own_nbytes, strip_nbytes, 1}, [&](const Round& round) {
    for (int peer = 0; peer < size(); ++peer) {
      const Slice slice = slice_of(args.numel, size(), peer);
      const size_t slice_nbytes = static_cast<size_t>(slice.numel) * element;
      if (peer == rank() || round.begin >= slice_nbytes) continue;
      std::byte* to = bytes(args.data) + static_cast<size_t>(slice.begin) * element + round.begin;
      std::memcpy(to, source(peer, 0, round), std::min(round.nbytes, slice_nbytes - round.begin));
    }
  });
}

void BoardCarrier::broadcast(const Ticket& ticket, const Broadcast& args) {
  const bool root = rank() == args.root;
  exchange(ticket, {bytes(args.data), root ? args.nbytes : 0, args.nbytes, 1}, [&](const Round& round) {
    if (root || round.nbytes == 0) return;
    std::memcpy(bytes(args.data) + round.begin, source(args.root, 0, round), round.nbytes);
  });
}

void BoardCarrier::barrier(const Ticket& ticket) {
  exchange(ticket, Window{}, [](const Round&) {});
}

std::unique_ptr<Carrier> BoardCarrier::channel(const std::string& name) {
  return std::make_unique<BoardCarrier>(board_->channel(name));
}

std::unique_ptr<Carrier> BoardCarrier::device_carrier(const std::string& name, const ComputeStream& compute) {
  if (!board_->in_one_process()) return nullptr;
  return std::make_unique<CudaBoardCarrier>(board_->channel(name), compute);
}

std::shared_ptr<Slab> BoardCarrier::allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) {
  return board_->allocate(nbytes, std::move(ledger), kind);
}

void BoardCarrier::abort(const std::string& reason) { board_->fail({rank(), "", cause_aborted(rank(), reason)}); }

}  // namespace shoal
