// Does a plan fit into the memory there is, and if not, what would: another stage, fewer activations, offload, more
// ranks. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "plan/stage_plans.h"

namespace shoal {

// What one host with its ranks has.
struct HostMemory {
  std::optional<size_t> gpu;   // of each rank's GPU
  std::optional<size_t> host;  // shared by its ranks
  int ranks_per_host = 1;
};

// What may be taken of it.
struct Budget {
  std::optional<size_t> device;  // of each rank's GPU
  std::optional<size_t> host;    // shared by the ranks of a host
  int ranks_per_host = 1;
  HostMemory whole = {};  // for words; nothing where the budget is all that is known

  bool given() const { return device || host; }
};
// Without the headroom that a run keeps (plan/headroom.h).
Budget budget_of(const HostMemory& memory);

// What must fit where: without a GPU memory everything lies in the host's.
bool fits(const StagePlan& plan, const Budget& budget);

// Where the bytes of a rank would lie at stage 3 with offload.
struct OffloadPlan {
  std::string settings;                                                      // "offload_optimizer, ratio 0.42,"
  std::string flags;                                                         // the same for the command line
  enum class Leaves { states, gradients, weights } leaves = Leaves::states;  // the last of them that leave the device
  size_t device = 0;                                                         // a rank
  size_t host = 0;                                                           // all ranks of a host
};
// Those that fit the budget's GPU, the least that must leave it first: a share of the states, gradients too, weights
// too.
std::vector<OffloadPlan> offload_plans(const PlanSubject& subject, const Config& config, int world,
                                       const Budget& budget);
bool fits(const OffloadPlan& plan, const Budget& budget);

// Whether the config's stage fits, as it was asked for.
bool chosen_fits(const PlanSubject& subject, const Config& config, int world, const Budget& budget);

struct Advice {
  std::vector<std::string> lines;  // plain sentences: does the config's stage fit, and if not, what would make it
  std::optional<std::string>
      words;  // for the command line, of what fits first; "": as it is; none: nothing is known to
};
Advice advise(const PlanSubject& subject, const Config& config, int world, const Budget& budget);

}  // namespace shoal
