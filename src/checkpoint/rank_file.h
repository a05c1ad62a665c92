// The file of one rank: pieces one after the other, each at a multiple of kAlignment, zeros between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/durable_file.h"
#include "checkpoint/manifest.h"
#include "checkpoint/state_ends.h"

namespace shoal::checkpoint {

// "rank-00003.bin".
std::string rank_file_name(int rank);

// In which dtype a state is stored: moments as they are kept; a weight in fp32, but in its own where it is frozen or
// has no master.
DType stored_dtype(const ParamInfo& param, StateKind kind, const KeptDTypes& kept);

// Which pieces a source's file has, of at most `piece_numel` elements each, and where, behind them its random state:
// all but the checksums, without a look at a value.
RankPart lay_out_rank_file(const StateSource& source, int64_t piece_numel = kPieceNumel);

// A piece as it is stored, of piece.nbytes() bytes. `values` is room to work in, kept from piece to piece.
void read_stored(const StateSource& source, const Piece& piece, std::vector<float>& values, void* stored);

// Writes and syncs the runs of a source, cut into pieces of at most `piece_numel` elements, and its random state.
// Memory: one piece.
RankPart write_rank_file(const std::string& path, const StateSource& source, int64_t piece_numel = kPieceNumel);

// The bytes of a piece or a random state; throws when they are not what was written, naming `what`.
std::vector<uint8_t> read_checked(const DurableFile& file, int64_t offset, int64_t nbytes, uint64_t digest,
                                  const std::string& what);

// A piece's elements as fp32.
std::vector<float> read_piece(const DurableFile& file, const Manifest& manifest, const Piece& piece);

}  // namespace shoal::checkpoint
