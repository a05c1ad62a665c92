// See exchange_pieces.h.
#include "plan/exchange_pieces.h"

#include <algorithm>

namespace shoal {

ExchangePieces cut_exchange(size_t strip_nbytes, int ranks, size_t most_nbytes) {
  constexpr size_t kAlignment = 64;
  ExchangePieces pieces;
  if (strip_nbytes == 0 || ranks < 2) return pieces;
  const size_t whole = most_nbytes == 0 ? kMostExchangedNbytes : std::min(most_nbytes, kMostExchangedNbytes);
  const size_t of_strip = whole / static_cast<size_t>(ranks) / kAlignment * kAlignment;
  pieces.piece_nbytes =
      std::min((strip_nbytes + kAlignment - 1) / kAlignment * kAlignment, std::max(kAlignment, of_strip));
  pieces.count = (strip_nbytes + pieces.piece_nbytes - 1) / pieces.piece_nbytes;
  pieces.buffer_nbytes = pieces.piece_nbytes * static_cast<size_t>(ranks - 1);
  pieces.buffers = pieces.count > 1 ? 2 : 1;
  return pieces;
}

}  // namespace shoal
