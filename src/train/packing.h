// Which documents go into which row of `sequence` tokens, so that few places stay empty. Pure: lengths in, rows out,
// the same on every rank.
#pragma once

#include <cstdint>
#include <vector>

namespace shoal::train {

// Tokens [begin, begin + numel) of a source, a document or a part of one. It takes numel - 1 places of a row: each
// token but the last is read, and each but the first is a target.
struct DocumentPart {
  int64_t begin = 0;
  int64_t numel = 0;
  int64_t learned = 0;  // targets that count

  int64_t places() const { return numel - 1; }
};

struct PackedRows {
  std::vector<DocumentPart> pieces;  // row after row
  std::vector<int64_t> firsts;       // the first piece of each row, and behind the last

  int64_t rows() const { return static_cast<int64_t>(firsts.size()) - 1; }
};

// The longest first, each into the row with the least room that holds it, a new row where there is none (best fit). The
// key decides among pieces of one length, so that neighbours in the data do not share rows, and shuffles the rows.
// Pieces take 1 to `sequence` places.
PackedRows pack(std::vector<DocumentPart> pieces, int64_t sequence, uint64_t key);

// A row for each piece, in their order.
PackedRows pad(std::vector<DocumentPart> pieces);

}  // namespace shoal::train
