// How many bytes a step moves between ranks, counted hop by hop as Traffic counts them, from layout and schedule. Pure.
// Agreements and the like are left out: a few hundred bytes a step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "layout/stage.h"
#include "plan/weight_shards.h"
#include "schedule/gather_schedule.h"
#include "shoal/config.h"

namespace shoal {

// What a rank sends in one step; it receives as much.
struct StepTraffic {
  uint64_t gathered = 0;                    // weights, stage 3: forward and backward of each micro-step
  uint64_t reduced = 0;                     // gradients
  uint64_t published = 0;                   // weights after the update
  std::map<std::string, uint64_t> by_axis;  // all of that, by the axis of the mesh along which it travels, or "world"
  uint64_t norm = 0;                        // sums of squares, a few kilobytes; not part of the total
  // By link: what of the total, and of the norm, goes to ranks on other hosts.
  uint64_t between_hosts = 0;
  uint64_t norm_between_hosts = 0;

  uint64_t total() const { return gathered + reduced + published; }
  uint64_t inside_hosts() const { return total() - between_hosts; }
};

// Whose traffic, and over what.
struct TrafficOptions {
  ShardOptions shards = {};     // whether there is a second copy of weights; their stage is the gradients'
  std::vector<int> hosts = {};  // the number of each rank's host; empty: all ranks are on one
  int rank = 0;
};

// With units used in the declared order, forward and backward. A second copy is filled once a step, where the weights
// change.
StepTraffic plan_traffic(const ModelLayout& layout, const GradientOptions& gradients, const GatherLimits& limits,
                         const TrafficOptions& options = {});
// As a config has it; hosts by what it knows of them.
StepTraffic plan_traffic(const ModelLayout& layout, const Config& config, int rank = 0);

}  // namespace shoal
