// manifest.json of a checkpoint as a value: which parameters, which pieces of them lie where, and the small numbers.
// docs/formats/checkpoint.md has the grammar. Written last, it makes a folder a checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/engine_state.h"

namespace shoal::checkpoint {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr int64_t kFormatVersion = 1;
inline constexpr int64_t kAlignment = 4096;  // of a piece in its file
// A text of `extra`: how many micro-steps were accumulated when it was saved, and are not in it.
inline constexpr std::string_view kAccumulated = "shoal.accumulated";
// A text of `extra`, "left out": frozen parameters are not in it, neither in `parameters` nor in `pieces`.
inline constexpr std::string_view kFrozenParameters = "shoal.frozen_parameters";
inline constexpr int64_t kPieceNumel = int64_t{4} << 20;  // the most elements of a piece that this version writes

struct SavedParam {
  std::string name;
  std::vector<std::string> aliases;
  std::vector<int64_t> shape;
  DType dtype = DType::f32;  // in which the weight is stored
  bool trainable = true;

  int64_t numel() const;
};

// Elements [begin, begin + numel) of one parameter in one state, at `offset` of a file.
struct Piece {
  int param = 0;
  StateKind kind = StateKind::weight;
  int64_t begin = 0;
  int64_t numel = 0;
  DType dtype = DType::f32;
  int file = 0;
  int64_t offset = 0;
  uint64_t digest = 0;

  int64_t nbytes() const { return numel * static_cast<int64_t>(nbytes_of(dtype)); }  // the reader bounds numel
};

// The random generator of one rank, as bytes.
struct SavedRandom {
  int rank = 0;
  int file = 0;
  int64_t offset = 0;
  int64_t nbytes = 0;
  uint64_t digest = 0;
};

struct SavedFile {
  std::string name;
  int64_t nbytes = 0;
};

struct Manifest {
  int64_t step = 0;
  int world = 1;              // ranks that saved it
  bool weights_only = false;  // made from weights: training starts here
  EngineProgress progress;    // without random states
  std::map<std::string, std::string> extra;
  std::string config;  // the effective config of the run, JSON; "": none
  std::vector<StateKind> states;
  std::vector<SavedParam> params;
  std::vector<SavedFile> files;
  std::vector<SavedRandom> randoms;
  std::vector<Piece> pieces;

  bool has(StateKind kind) const;
  bool leaves_out_frozen() const { return extra.count(std::string(kFrozenParameters)) != 0; }
  // "weight of block.0.w, elements 5 to 9", for messages.
  std::string describe(const Piece& piece) const;
};

// The text of manifest.json, with its own checksum.
std::string write_manifest(const Manifest& manifest);

// Reads it back. Throws an Error with `place` for a text that is cut off, was changed, is of a later version, or
// does not cover every element of every parameter exactly once.
Manifest parse_manifest(std::string_view text, const std::string& place);

// What one rank has written, for rank 0 to put together: its file, its random state and its pieces, all with file 0.
struct RankPart {
  SavedFile file;
  SavedRandom random;  // nbytes 0: none
  std::vector<Piece> pieces;
};
std::string write_rank_part(const RankPart& part);
RankPart parse_rank_part(std::string_view text);

}  // namespace shoal::checkpoint
