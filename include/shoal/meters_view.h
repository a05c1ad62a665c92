// What an engine has cost so far: bytes held, sent and moved, seconds waited. A view is a cheap value that refers to
// its engine and owns nothing: use it while the engine lives.
//
//   fmt::print("{}", to_text(engine.meters().memory().planned));
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shoal/collective_record.h"
#include "shoal/error.h"
#include "shoal/group.h"
#include "shoal/memory_plan.h"

namespace shoal {

class Engine;
class EngineImpl;

struct MemoryReport {
  MemoryPlan planned;
  MemoryPlan held;              // now, by the ledger
  size_t user_gathered = 0;     // held by with_gathered, now
  size_t host_activations = 0;  // host memory for the inputs of recomputed regions, of a rank with a GPU
};

// Between this rank and its disk tier.
struct DiskTraffic {
  uint64_t read_nbytes = 0;
  uint64_t written_nbytes = 0;
  double waited_seconds = 0;  // for what could not hide
};

// Between this rank's GPU and host memory: bytes of states that live there, and waits for states, gradients, weights.
struct HostTraffic {
  uint64_t to_device_nbytes = 0;
  uint64_t to_host_nbytes = 0;
  double waited_seconds = 0;       // the GPU, for what could not hide; known one or two steps later
  int64_t host_updated_numel = 0;  // elements that the host updates in a step, in place of this GPU or beside it
  // With speculative_update, in all steps: elements that the host updated before the step was decided, and those of
  // them that were not to be updated again.
  int64_t ahead_numel = 0, taken_ahead_numel = 0;
};

// How long this rank has waited for others, by what for; together they are waited_seconds().
struct CommTimes {
  double weights_seconds = 0;    // gathers, publishes, and the agreement on their order
  double gradients_seconds = 0;  // reductions, the norm, and the agreement on their order
  // How long collectives were under way, whether anybody waited for them or not; 0 on a GPU, where it is not measured.
  double carried_seconds = 0;
};

class MetersView {
 public:
  MemoryReport memory() const;
  // Bytes sent and received so far, weights and gradients together.
  Traffic traffic() const;
  // From now on each collective of this rank is put down, or no longer. Whoever switches it on takes what is there now
  // and then: those that ended since the last time, weights' first.
  void log_collectives(bool on) const;
  std::vector<CollectiveRecord> take_collectives() const;
  // How bytes of the model travel between ranks: Group::transport_name() of the channels that carry them.
  std::string transport() const;
  // Seconds that this rank's threads and its GPU have spent waiting for communication so far; what the GPU waited is
  // known one or two steps later.
  double waited_seconds() const;
  CommTimes comm_times() const;
  // What offloaded states have cost so far.
  DiskTraffic disk() const;
  HostTraffic host() const;
  // For whoever runs passes by HooksView::enter and exit: what torch said when the GPU's memory was full, with the unit
  // at work, what the states take, and what would help. Engine::run and backward throw it themselves.
  Error explain_out_of_memory(const std::string& phase, const std::string& said) const;

 private:
  friend class Engine;
  explicit MetersView(EngineImpl& engine) : engine_(&engine) {}

  EngineImpl* engine_;
};

}  // namespace shoal
