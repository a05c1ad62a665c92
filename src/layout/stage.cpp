// See stage.h.
#include "layout/stage.h"

#include <array>

#include "base/check.h"

namespace shoal {

Stage::Stage(int number) : number(number) {
  //                                         weights       gradients     states
  constexpr std::array<StageRow, 4> kRows = {{{Over::nobody, Over::nobody, Over::nobody},  // 0: all whole
                                              {Over::nobody, Over::nobody, Over::world},   // 1
                                              {Over::nobody, Over::world, Over::world},    // 2
                                              {Over::world, Over::world, Over::world}}};   // 3
  SHOAL_CHECK(number >= 0 && number <= 3, "stage {}", number);
  row = kRows[static_cast<size_t>(number)];
}

StageRow row_of(const FlatLayout& flat, const Stage& stage) {
  StageRow row = stage.row;
  if (flat.persistent) row.weights = Over::nobody;
  return row;
}

Ways ways_of(const FlatLayout& flat, const Stage& stage) {
  const StageRow row = row_of(flat, stage);
  return {.weights = row.weights,
          .summed = Over::world,
          .updated = row.states,
          .published = row.states == Over::nobody ? Over::nobody : row.weights};
}

int64_t numel_over(const FlatLayout& flat, Over over) {
  switch (over) {
    case Over::nobody: return flat.numel;
    case Over::inner: return flat.inner_numel;
    case Over::shard: return flat.shard_numel;
    case Over::world: return flat.rank_numel;
  }
  return flat.numel;
}

GradientRule gradient_rule(const FlatLayout& flat, const GradientOptions& options) {
  const bool accumulates = options.accumulation_steps > 1;
  const Over cut = row_of(flat, options.stage).gradients;
  const bool folds = cut != Over::nobody || options.reproducible;
  GradientRule rule;
  rule.kept_whole = numel_over(flat, cut) == flat.numel;
  rule.every_micro_step = folds || !accumulates;
  if (rule.every_micro_step) {
    rule.wire = options.communication_dtype.value_or(flat.dtype);
    rule.rounding = options.accumulation_dtype.value_or(rule.wire);
    rule.kept = accumulates ? DType::f32 : rule.rounding;
    // Where they are kept can take them as they come only if it is whole, has the wire's dtype, and holds no sum of
    // earlier leaves.
    rule.through_slot = !rule.kept_whole || rule.wire != rule.kept || accumulates;
  } else {
    rule.kept = rule.rounding = options.accumulation_dtype.value_or(DType::f32);
    rule.wire = options.communication_dtype.value_or(rule.kept);
    rule.through_slot = rule.wire != rule.kept;
  }
  return rule;
}

}  // namespace shoal
