// Trains the matrix model while one rank dies, hangs, gives up or goes astray in a chosen way, at a known place: in the
// unit "drop" of a later step. The peers then wait for the unit "sometimes", or for what the test names.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "training/matrix_run.h"

namespace shoal::testing {

enum class Fault : uint8_t {
  none,
  killed_in_forward,
  killed_in_backward,    // of stage 2: in the gradient of a unit's output
  killed_in_recompute,   // of stage 3: in the forward that backward repeats
  killed_in_collective,  // waits in it together with peers; one of them comes late
  another_order,         // of units, after the ranks have agreed on one
  another_order_first,   // in the first pass only
  another_order_always,
  another_config,
  another_stage,
  another_model,
  no_model,  // the engine refuses its model
  throws_in_forward,
  throws_in_backward,
  hangs,  // far beyond the timeout
  stops_early,
  evaluates_alone,
  gathers_alone,
};

struct FaultyRun {
  Fault fault = Fault::none;
  int faulty_rank = 1;
  int stage = 3;
  int shard_size = -1;   // mics_shard_size
  int64_t prefetch = 0;  // none: who dies in a unit has not begun to gather the next
  bool overlap = true;
  std::chrono::milliseconds pause{0};      // how long who hangs hangs
  std::chrono::milliseconds settle{250};   // before a fault in backward: until what was issued before it is done
  std::function<void()> announce = [] {};  // right before the fault
};

inline constexpr int kFaultyStep = 3;

// The engine is gone when this throws or returns, as it would be in a user's program.
RunResult train_with_fault(Group& world, const FaultyRun& run);

// What a peer must say, as a regular expression: its own place, who was first to notice, and who is to blame.
std::string said_by(int rank, const std::string& place, const std::string& cause);

}  // namespace shoal::testing
