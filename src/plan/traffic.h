// How many bytes a step moves between ranks, counted hop by hop as Traffic counts them, from layout and schedule. Pure.
// Sums of squares, agreements and the like are left out: a few hundred bytes a step.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "layout/stage.h"
#include "schedule/gather_schedule.h"

namespace shoal {

// What a rank sends in one step; it receives as much.
struct StepTraffic {
  uint64_t gathered = 0;                    // weights, stage 3: forward and backward of each micro-step
  uint64_t reduced = 0;                     // gradients
  uint64_t published = 0;                   // weights after the update
  std::map<std::string, uint64_t> by_axis;  // all of it, by the axis of the mesh along which it travels

  uint64_t total() const { return gathered + reduced + published; }
};

// With units used in the declared order, forward and backward.
StepTraffic plan_traffic(const ModelLayout& layout, const GradientOptions& gradients, const GatherLimits& limits);

}  // namespace shoal
