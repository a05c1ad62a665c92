// Who owns which elements: parameters laid out in flats, flats cut into equal shards.
// Pure integers. The engine allocates by it, the planner counts by it, so they cannot disagree.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "layout/mesh.h"
#include "layout/param_spec.h"
#include "layout/wire.h"

namespace shoal {

// Every parameter begins at a multiple of this many elements in its flat, and every shard too: 256 bytes in bf16,
// 512 in fp32, so that matmuls see the same alignment at every stage. Also a run of the gradient norm: see sum_tree.h.
inline constexpr int64_t kAlignNumel = 128;
static_assert(kAlignNumel % kBlockNumel == 0, "a part would begin inside a block");

struct Piece {
  int param = 0;       // index into the unit's parameters
  int64_t offset = 0;  // first element in the flat
  int64_t numel = 0;
};

// One contiguous run of a unit's parameters of one dtype, frozen and trainable apart, small ones apart.
struct FlatLayout {
  DType dtype = DType::f32;
  bool trainable = true;
  bool persistent = false;  // small parameters, whole on every rank at every stage
  int64_t numel = 0;        // padding included
  int64_t inner_numel = 0;  // of a part over the shard axis alone
  int64_t shard_numel = 0;  // of a part of one copy of the model
  int64_t rank_numel = 0;   // of a part over the world
  std::vector<Piece> pieces;
};

struct UnitLayout {
  std::string name;
  std::vector<FlatLayout> flats;
  std::vector<int> borrows;
};

struct ModelLayout {
  Mesh mesh;
  std::vector<UnitLayout> units;
};

struct LayoutOptions {
  Mesh mesh;
  int64_t persistence_threshold = 100'000;          // parameters of at most this many elements are small
  int64_t model_persistence_threshold = INT64_MAX;  // small parameters in all, in elements, in order of appearance
};

// The layout does not depend on the stage, and the order of parameters in a flat not on the mesh: the gradient norm is
// summed flat by flat, and nothing of the cut shows in it.
ModelLayout lay_out(const std::vector<UnitSpec>& units, const LayoutOptions& options);

// Pads a flat so that it can be cut over the mesh, and says how long the parts are.
void cut_evenly(FlatLayout& flat, const Mesh& mesh);

// The part of a piece that lies in [begin, end) of its flat.
struct ParamRun {
  int param = 0;
  int64_t param_offset = 0;  // first element within the parameter
  int64_t flat_offset = 0;   // first element within the flat
  int64_t numel = 0;
};
std::vector<ParamRun> runs_in(const FlatLayout& flat, int64_t begin, int64_t end);

// The elements of the flat that belong to no parameter, as (offset, numel).
std::vector<std::pair<int64_t, int64_t>> gaps_of(const FlatLayout& flat);

std::string to_text(const ModelLayout& layout);

}  // namespace shoal
