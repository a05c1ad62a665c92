// The stage table: what each ZeRO stage cuts over which ranks, and how gradients travel. A stage is a row here and
// nowhere else.
#pragma once

#include <cstdint>
#include <optional>

#include "layout/flat_layout.h"

namespace shoal {

// Over which ranks something is cut into equal parts. nobody: it is whole on every rank; shard: over those that hold
// one copy of the model together; inner: over the shard axis alone, which gathers over a span of hosts pass through.
enum class Over : uint8_t { nobody, inner, shard, world };

struct StageRow {
  Over weights = Over::nobody;
  Over gradients = Over::nobody;
  Over states = Over::nobody;

  bool operator==(const StageRow&) const = default;
};

// What a run cuts: a ZeRO stage by its number, which cuts over the world, or by that number a row of its own.
struct Stage {
  Stage(int number = 0);  // NOLINT(google-explicit-constructor): 0 to 3
  Stage(int number, StageRow row) : number(number), row(row) {}

  int number = 0;
  StageRow row;

  bool operator==(const Stage&) const = default;
};

// The row that holds for one flat: a persistent flat keeps its weights whole, so at stage 3 it lives by stage 2's row.
StageRow row_of(const FlatLayout& flat, const Stage& stage);

// Whether its weights are cut, and gathered for use.
inline bool is_gathered(const FlatLayout& flat, const Stage& stage) {
  return row_of(flat, stage).weights != Over::nobody;
}

// Whether its optimizer states are cut, so that a rank updates a part of it.
inline bool states_are_cut(const FlatLayout& flat, const Stage& stage) {
  return row_of(flat, stage).states != Over::nobody;
}

// How a flat is cut at the ends of its ways between ranks.
struct Ways {
  Over weights = Over::nobody;    // as they rest, and are gathered from
  Over summed = Over::world;      // gradients as a reduction leaves them: every element has one rank that sums it
  Over updated = Over::nobody;    // what a rank updates, and needs the sum of
  Over published = Over::nobody;  // new weights once they have come to where they are read
};
Ways ways_of(const FlatLayout& flat, const Stage& stage);

// Elements of one part of the flat.
int64_t numel_over(const FlatLayout& flat, Over over);

// Whether a part of its weights is the flat itself, as with one rank: there is nothing to gather.
inline bool is_alone(const FlatLayout& flat, const Stage& stage) {
  return numel_over(flat, row_of(flat, stage).weights) == flat.numel;
}

// What decides how gradients are kept and reduced.
struct GradientOptions {
  Stage stage = 0;
  int64_t accumulation_steps = 1;
  bool reproducible = false;
  std::optional<DType> communication_dtype = {};
  std::optional<DType> accumulation_dtype = {};
  int64_t fold_group = 0;  // leaves that are folded by themselves, before groups are; 0: all are one group
  int data_ranks = 1;      // leaves of a micro-step
  // Of a number in the blocks in which replicas send each other sums, 8 or 4; 0: nothing is quantized. See
  // [Note: quantized sums] in schedule/route.h.
  int sum_bits = 0;
  bool keeps_errors = false;  // what rounding takes from a sum is given back to later ones

  // Whether a group may be open from one micro-step to the next, so that its sum needs memory of its own.
  bool keeps_groups_open() const { return fold_group > 0 && accumulation_steps > 1 && data_ranks % fold_group != 0; }
};

// [Note: the fold]
// A leaf is the gradient of one micro-batch. A step has V of them, accumulation steps * data ranks: leaf v is made by
// data rank v mod D in micro-step v div D. Each is rounded to the wire's dtype, and the owner of a part adds them in
// the order of v, in fp32 (kernels/reduce.h), multiplies the sum by 1/V once and rounds once. So neither the number of
// ranks nor the stage shows in the result, if each micro-step is reduced by itself: always where gradients are cut, and
// elsewhere with `reproducible`. None of the dtypes that matter to it (wire, rounding) may depend on the world or on
// the accumulation; `kept`, the memory, does: a sum that waits for more leaves waits in fp32.

// How the gradients of one flat are kept and reduced.
struct GradientRule {
  DType kept = DType::f32;        // dtype they wait in, for more leaves or for the update
  DType rounding = DType::f32;    // what their mean is rounded to; kept, or a narrower one in a kept f32
  DType wire = DType::f32;        // dtype they are reduced from
  bool kept_whole = false;        // whole on every rank, not only this rank's shard
  bool every_micro_step = false;  // reduced after each micro-step, not once a step
  bool through_slot = false;      // collected in a reduce slot first, not where they are kept
};
GradientRule gradient_rule(const FlatLayout& flat, const GradientOptions& options);

}  // namespace shoal
