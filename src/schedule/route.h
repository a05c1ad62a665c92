// How the elements of a flat travel between ranks: a list of hops, each between the ranks along one axis of the mesh.
// Pure. Decided here, carried out in shard/, counted in plan/.
//
// [Note: the order of hops]
// A part over the world lies within the rank's part of its copy of the model (see layout/cut.h). So a gather goes along
// `replica` first and yields the part over `shard`, then along `span` where a copy has one, then along `shard`, and
// elements are in order at each end.
//
// [Note: leaves travel in one hop, sums in two]
// Each element's leaves must meet on one rank to be folded in their order. An exchange over all ranks at once brings
// them there, and no leaf crosses a link twice: between hosts (R - 1) * S parts over the world leave a rank, the least
// there is without adding, and S - 1 stay inside. Two hops of leaves would send as many between hosts and R times as
// many inside. Sums may travel instead of leaves where the config asks for it: with `shoal.fold_group` S, the ranks of
// one copy of the model add up their leaves first (hop one, along `shard`, yields fp32 sums), and the replicas' sums
// are folded in their order (hop two). Then R - 1 parts of 4 bytes an element leave a rank between hosts, which is less
// if 4 is below S times the wire's bytes; inside, (S - 1) * R parts. The bits depend on the size of the group alone.
//
// [Note: quantized sums]
// With zero_quantized_gradients sums travel, whatever they save, and those of the second hop are in blocks
// (kernels/blocks.h): each replica's sum is quantized, its own too, and they are folded in their order in fp32. So the
// bits depend on the size of the group and of the numbers alone: not on the stage, nor on which rank keeps a part. Only
// what is between replicas is quantized, one time each: with one replica all is exact. Small parameters, which are a
// few per cent of the bytes and feel it most, send their sums in fp32.
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
  std::string_view axis = kShard;  // or kWorld
  int ranks = 1;                   // along the axis
  int64_t part_numel = 0;          // what each of them gives to the gather, or gets of the reduction
  Over yields = Over::nobody;
  Wire wire;

  bool is_quantized() const { return wire.is_blocks(); }
  // What a rank sends; it receives as much.
  uint64_t sent_nbytes() const { return static_cast<uint64_t>(ranks - 1) * wire.nbytes(part_numel); }
};

using Route = std::vector<Hop>;

// From parts over `from` to parts over `to`, which has fewer or none.
Route gather_route(const FlatLayout& flat, Over from, Over to, const Mesh& mesh, Wire wire);
// From what every rank has of the whole to parts of the sum over the world. `sums`: of the ranks of a copy of the model
// first, in fp32, and of replicas then.
enum class Travel : uint8_t { leaves, sums };
Route reduce_route(const FlatLayout& flat, const Mesh& mesh, Wire wire, Travel travel = Travel::leaves,
                   Wire of_sums = {DType::f32});
// What the gradients of a flat do; and if sums travel, in which form between replicas.
Travel travel_of(const FlatLayout& flat, const GradientOptions& options, const Mesh& mesh);
Wire wire_of_sums(const FlatLayout& flat, const GradientOptions& options);

// The ranks that a hop is between, as its group counts them. Along kWorld: by their parts.
std::vector<int> ranks_along(std::string_view axis, const Mesh& mesh, int rank);

// The ways of a flat at a stage. Empty: nothing travels.
struct FlatRoutes {
  Route gather;   // weights, for use, in their dtype; as they travel: weight_wire() of plan/weight_shards.h
  Route reduce;   // gradients, to what this rank keeps of the sum or updates by
  Route share;    // and the sum to all who update by it, where several do
  Route publish;  // weights, after the update
};
FlatRoutes routes_of(const FlatLayout& flat, const GradientOptions& options, const Mesh& mesh);

uint64_t sent_nbytes(const Route& route);
// fp32 sums on their way from one hop of a reduction to the next.
size_t sums_nbytes(const Route& reduce);

// "all_gather along shard of 4: 128 f32 each\n", a line a hop: for golden tests.
std::string to_text(const Route& route);

}  // namespace shoal
