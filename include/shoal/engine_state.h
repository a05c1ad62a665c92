// What the next step depends on, as a checkpoint sees it: runs of elements of named parameters, and a few numbers.
// Values pass as fp32, in which every state is exact: a trained weight stands for its fp32 master, whatever the
// precision of the run, so that a checkpoint does not know stage, world size or precision. A run that keeps a state in
// 16 bits alone rounds what is written to it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/dtype.h"

namespace shoal {

enum class StateKind : uint8_t {
  weight,         // a trained weight's fp32 master; a frozen weight itself
  first_moment,   // of trained parameters, where the optimizer keeps one
  second_moment,  // likewise
};
// "weight", "first_moment", "second_moment".
std::string_view name_of(StateKind kind);

// One parameter as declared, tied names apart.
struct ParamInfo {
  std::string name;
  std::vector<std::string> aliases;  // other names of the same tensor, sorted
  std::vector<int64_t> shape;
  std::string unit;
  DType dtype = DType::f32;  // of the weight in this run
  bool trainable = true;
  bool sharded = false;  // its weight is released between uses; a small one stays whole at stage 3 too
};

// Elements [begin, begin + numel) of one parameter in one state.
struct StateRun {
  int param = 0;  // index into the state's params()
  StateKind kind = StateKind::weight;
  int64_t begin = 0;
  int64_t numel = 0;
};

// The smaller part of the state. All but the random state is equal on every rank.
struct EngineProgress {
  int64_t applied_steps = 0;
  int64_t skipped_steps = 0;
  double loss_scale = 0;  // 0: the run had no dynamic one
  int64_t loss_scale_hysteresis_left = 1;
  int64_t loss_scale_step = 0;
  int64_t loss_scale_last_overflow = -1;
  std::vector<uint8_t> random_state;  // of this rank's generator; empty: leave the generator as it was seeded
};

}  // namespace shoal
