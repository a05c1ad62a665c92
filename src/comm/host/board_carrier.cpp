// See board_carrier.h.
#include "comm/host/board_carrier.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace shoal {

namespace {

constexpr size_t kStagingNbytes = size_t{8} << 20;
constexpr size_t kPieceAlignment = 64;

// Bytes of each strip that one round covers: the same on every rank, as it follows from what the tickets agree on.
size_t piece_nbytes(const Ticket& ticket, int strips) {
  const size_t whole = ticket.piece_nbytes > 0 ? std::min<size_t>(ticket.piece_nbytes, kStagingNbytes) : kStagingNbytes;
  return std::max(kPieceAlignment, whole / static_cast<size_t>(strips) / kPieceAlignment * kPieceAlignment);
}

std::byte* bytes(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

void compare_tickets(Board& board, const Ticket& mine) {
  for (int peer = 0; peer < board.size(); ++peer) {
    const int global = board.members().global(peer);
    const std::string how = disagreement(mine, board.ticket_of(peer), global, board.channel_name());
    if (how.empty()) continue;
    const int own = board.members().global();
    const Failure failure{own, describe(mine, board.channel_name()), how};
    board.fail(failure);
    throw error_of(failure, own, failure.at);
  }
}

Carrier::About about_board(const Board& board, const std::string& transport_name) {
  return {board.members(), board.channel_name(), transport_name, board.fate()};
}

BoardCarrier::BoardCarrier(std::unique_ptr<Board> board)
    : Carrier([&] {
        About about = about_board(*board, board->transport_name());
        about.ledger = board->ledger();
        return about;
      }()),
      board_(std::move(board)) {}

void BoardCarrier::stage(const Strips& window, const Round& round) {
  std::byte* staging = board_->staging(round.piece_nbytes * static_cast<size_t>(window.count));
  for (int strip = 0; strip < window.count; ++strip) {
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
void BoardCarrier::meet(const Ticket& ticket, const Strips& window, const std::function<void(const Round&)>& read) {
  const bool staged = window.nbytes > 0 && !board_->reaches(window.data, window.nbytes);
  Round round;
  round.strip_nbytes = window.strip_nbytes;
  round.piece_nbytes = std::min(piece_nbytes(ticket, window.count), window.strip_nbytes);
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

void BoardCarrier::exchange(const Ticket& ticket, const Strips& strips, const Take& take) {
  const int strip = strips.count == 1 ? 0 : rank();
  const size_t own_nbytes = strips.nbytes_at(strip);
  std::vector<const void*> sources(static_cast<size_t>(size()));
  meet(ticket, strips, [&](const Round& round) {
    if (round.begin >= own_nbytes) return;
    for (int peer = 0; peer < size(); ++peer) {
      const std::byte* own = strips.data + static_cast<size_t>(strip) * strips.strip_nbytes + round.begin;
      sources[peer] = peer == rank() ? own : source(peer, strip, round);
    }
    take({round.begin, std::min(round.nbytes, own_nbytes - round.begin), sources.data()});
  });
}

void BoardCarrier::all_gather(const Ticket& ticket, const Gather& args) {
  meet(ticket, {args.own, args.nbytes_at(rank()), args.strip_nbytes, 1}, [&](const Round& round) {
    for (int step = 0; step < size(); ++step) {
      const int peer = (rank() + step) % size();  // each rank begins elsewhere, so they do not all read the same memory
      const size_t nbytes = args.nbytes_at(peer);
      if (round.begin >= nbytes) continue;
      std::byte* to = args.place(peer) + round.begin;
      const std::byte* from = peer == rank() ? args.own + round.begin : source(peer, 0, round);
      if (to != from) std::memcpy(to, from, std::min(round.nbytes, nbytes - round.begin));
    }
  });
}

void BoardCarrier::broadcast(const Ticket& ticket, const Broadcast& args) {
  const bool root = rank() == args.root;
  meet(ticket, {bytes(args.data), root ? args.nbytes : 0, args.nbytes, 1}, [&](const Round& round) {
    if (root || round.nbytes == 0) return;
    std::memcpy(bytes(args.data) + round.begin, source(args.root, 0, round), round.nbytes);
  });
}

void BoardCarrier::barrier(const Ticket& ticket) {
  meet(ticket, Strips{}, [](const Round&) {});
}

std::unique_ptr<Carrier> BoardCarrier::open(const std::string& name, const Members& members, Lane) {
  return std::make_unique<BoardCarrier>(board_->open(name, members));
}

std::shared_ptr<Board> BoardCarrier::open_board_of_gpus(const std::string& name) {
  if (!board_->in_one_process()) return nullptr;
  return board_->open(name, members());
}

std::shared_ptr<Slab> BoardCarrier::allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) {
  return board_->allocate(nbytes, std::move(ledger), kind);
}

}  // namespace shoal
