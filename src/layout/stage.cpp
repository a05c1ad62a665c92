// See stage.h.
#include "layout/stage.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace shoal {

StageRow stage_row(int stage) {
  //                                         weights  gradients  states
  constexpr std::array<StageRow, 4> kRows = {{{false, false, false},  // 0: all whole
                                              {false, false, true},   // 1
                                              {false, true, true},    // 2
                                              {true, true, true}}};   // 3
  SHOAL_CHECK(stage >= 0 && stage <= 3, "stage {}", stage);
  return kRows[static_cast<size_t>(stage)];
}

StageRow row_of(const FlatLayout& flat, int stage) { return stage_row(flat.persistent ? std::min(stage, 2) : stage); }

GradientRule gradient_rule(const FlatLayout& flat, const GradientOptions& options) {
  const bool accumulates = options.accumulation_steps > 1;
  GradientRule rule;
  rule.kept_whole = !row_of(flat, options.stage).shard_gradients || is_alone(flat);
  rule.every_micro_step = !rule.kept_whole || options.reproducible || !accumulates;
  if (accumulates) {
    rule.kept = options.accumulation_dtype.value_or(DType::f32);
    rule.wire = options.communication_dtype.value_or(rule.every_micro_step ? flat.dtype : rule.kept);
  } else {
    rule.wire = options.communication_dtype.value_or(flat.dtype);
    rule.kept = options.accumulation_dtype.value_or(rule.wire);
  }
  // Where they are kept can take them as they come only if it is whole, has the wire's dtype, and holds nothing
  // reduced yet that the next micro-step would be mixed into.
  rule.through_slot = !rule.kept_whole || rule.wire != rule.kept || (rule.every_micro_step && accumulates);
  return rule;
}

}  // namespace shoal
