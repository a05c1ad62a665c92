// How an exchange whose bytes must be received somewhere is cut, and the memory that this takes: each rank's strip goes
// in pieces through two buffers, so that one piece travels while the one before it is added. Pure: the carrier of NCCL
// receives by it, the planner counts by it.
#pragma once

#include <cstddef>

namespace shoal {

struct ExchangePieces {
  size_t piece_nbytes = 0;   // of each strip, a multiple of 64; the last piece may be shorter
  size_t count = 0;          // of pieces
  size_t buffer_nbytes = 0;  // a piece of every other rank
  size_t buffers = 0;        // two, or one where there is one piece

  size_t nbytes() const { return buffers * buffer_nbytes; }
};

// More than this, of all strips together, makes a transfer no faster.
inline constexpr size_t kMostExchangedNbytes = size_t{64} << 20;

// `strip_nbytes`: of each of `ranks` strips. `most_nbytes`: of all strips in one piece, as a user wants it; 0: not
// said.
ExchangePieces cut_exchange(size_t strip_nbytes, int ranks, size_t most_nbytes);

}  // namespace shoal
