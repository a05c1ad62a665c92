// Digests of what a run has trained: weights and moments of each parameter, equal at every number of ranks, stage and
// tier. `shoal train --digest-every` writes them, `shoal compare` reads them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "shoal/engine.h"
#include "shoal/group.h"

namespace shoal::train {

struct ParamDigests {
  std::string name, unit;
  std::vector<std::pair<StateKind, uint64_t>> states;  // in the order of StateKind
};

struct StateDigests {
  std::vector<ParamDigests> params;  // in the model's order

  // Of all of them, the names among what counts.
  uint64_t all() const;
};

// Reads every state once; on a GPU, in host memory or on disk they are copied through a small buffer. Between steps;
// every rank calls it, and gets the same.
StateDigests digest_states(const Engine& engine, Group& world);

// A line of digests.jsonl without its end:
//   {"step": 4, "digest": "..", "units": {"block.0": {"block.0.wq": {"weight": "..", "first_moment": ".."}}}}
std::string to_line(int64_t step, const StateDigests& digests);

}  // namespace shoal::train
