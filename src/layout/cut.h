// Which elements of a flat a rank holds, and which it speaks for. Pure. Whoever asks "which are mine" asks here.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/flat_layout.h"
#include "layout/mesh.h"
#include "layout/stage.h"

namespace shoal {

// One of `parts` equal parts of a flat: the elements [begin, end).
struct Cut {
  Over over = Over::nobody;
  int parts = 1;
  int index = 0;
  int64_t begin = 0, end = 0;

  int64_t numel() const { return end - begin; }
  // Whether it is cut at all. In a world of one a part may be the whole all the same.
  bool is_part() const { return over != Over::nobody; }
};

// [Note: parts within parts]
// A part over the world lies within the same rank's part of its copy of the model: the part of shard s of S and replica
// r of R has the index s * R + r, not the rank. So what a rank speaks for is among what it holds, at every stage, and a
// gather over replicas, then over shards, yields elements in order. Where a copy is cut over a span of H hosts too, the
// shard of host h has the index s * H + h, for the same reason.
Cut cut(const FlatLayout& flat, Over over, const Mesh& mesh, int rank);

// The ranks in the order of their parts over the world.
std::vector<int> ranks_by_part(const Mesh& mesh);

// The cuts of one rank at one stage.
class Cuts {
 public:
  Cuts(const Mesh& mesh, int rank, const Stage& stage) : mesh_(mesh), rank_(rank), stage_(stage) {}

  Cut weights(const FlatLayout& flat) const { return cut(flat, row_of(flat, stage_).weights, mesh_, rank_); }
  Cut gradients(const FlatLayout& flat) const { return cut(flat, row_of(flat, stage_).gradients, mesh_, rank_); }
  Cut states(const FlatLayout& flat) const { return cut(flat, row_of(flat, stage_).states, mesh_, rank_); }
  Cut over(const FlatLayout& flat, Over over) const { return cut(flat, over, mesh_, rank_); }
  // What it speaks for, in checkpoints and norms: every element has one such rank, whatever the stage.
  Cut own(const FlatLayout& flat) const { return cut(flat, Over::world, mesh_, rank_); }

  const Mesh& mesh() const { return mesh_; }
  const Stage& stage() const { return stage_; }
  int rank() const { return rank_; }

 private:
  Mesh mesh_;
  int rank_;
  Stage stage_;
};

}  // namespace shoal
