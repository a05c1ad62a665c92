// How the elements of a flat travel between ranks: a list of hops, each between the ranks along one axis of the mesh.
// Pure. Decided here, carried out in shard/, counted in plan/.
//
// [Note: the order of hops]
// A part over the world lies within the rank's part over the shard axis (see layout/cut.h). So a gather goes along
// `replica` first and yields the part over the shard axis, then along `shard`, and elements are in order at each end.
// A reduction goes the other way. With one axis both are one hop.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layout/cut.h"
#include "layout/stage.h"
#include "layout/wire.h"

namespace shoal {

struct Hop {
  enum class Verb : uint8_t { all_gather, reduce_scatter };
  Verb verb = Verb::all_gather;
  std::string_view axis = kShard;
  int ranks = 1;           // along the axis
  int64_t part_numel = 0;  // what each of them gives to the gather, or gets of the reduction
  Over yields = Over::nobody;
  Wire wire;

  // What a rank sends; it receives as much.
  uint64_t sent_nbytes() const { return static_cast<uint64_t>(ranks - 1) * wire.nbytes(part_numel); }
};

using Route = std::vector<Hop>;

// From parts over `from` to parts over `to`, which has fewer or none.
Route gather_route(const FlatLayout& flat, Over from, Over to, const Mesh& mesh, Wire wire);
// From what every rank has of the whole to parts of the sum over `to`.
Route reduce_route(const FlatLayout& flat, Over to, const Mesh& mesh, Wire wire);

// The ways of a flat at a stage. Empty: nothing travels.
struct FlatRoutes {
  Route gather;   // weights, for use
  Route reduce;   // gradients, to what this rank keeps of the sum or updates by
  Route share;    // and the sum to every rank, where each updates everything
  Route publish;  // weights, after the update
};
FlatRoutes routes_of(const FlatLayout& flat, const GradientOptions& options, const Mesh& mesh);

uint64_t sent_nbytes(const Route& route);

// "all_gather along shard of 4: 128 f32 each\n", a line a hop: for golden tests.
std::string to_text(const Route& route);

}  // namespace shoal
