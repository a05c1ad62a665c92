// The stage table: what each ZeRO stage shards, and how gradients travel. A stage is a row here and nowhere else.
#pragma once

#include <cstdint>
#include <optional>

#include "layout/flat_layout.h"

namespace shoal {

struct StageRow {
  bool shard_weights = false;
  bool shard_gradients = false;
  bool shard_states = false;
};

// The row of stage 0 to 3.
StageRow stage_row(int stage);

// The row that holds for one flat: a persistent flat keeps its weights whole, so at stage 3 it lives by stage 2's row.
StageRow row_of(const FlatLayout& flat, int stage);

// Whether the shard is the flat itself: in a world of one there is nothing to gather, and no other rank's gradient.
inline bool is_alone(const FlatLayout& flat) { return flat.shard_numel == flat.numel; }

// What decides how gradients are kept and reduced.
struct GradientOptions {
  int stage = 0;
  int64_t accumulation_steps = 1;
  bool reproducible = false;
  std::optional<DType> communication_dtype = {};
  std::optional<DType> accumulation_dtype = {};
};

// How the gradients of one flat are kept and reduced.
struct GradientRule {
  DType kept = DType::f32;        // dtype they wait in for the update
  DType wire = DType::f32;        // dtype they are reduced from
  bool kept_whole = false;        // whole on every rank, not only this rank's shard
  bool every_micro_step = false;  // reduced after each micro-step, not once a step
  bool through_slot = false;      // collected in a reduce slot first, not where they are kept
};
GradientRule gradient_rule(const FlatLayout& flat, const GradientOptions& options);

}  // namespace shoal
