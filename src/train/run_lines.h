// What a run says of itself, line by line: what it goes on from, and at its end what it took. Text alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "optim/nonfinite_steps.h"
#include "shoal/checkpoint.h"
#include "shoal/engine.h"

namespace shoal::train {

// Of the run that goes on.
struct ResumeFacts {
  int ranks = 1, threads = 1;
  std::string optimizer;  // "AdamW"
  int64_t batch = 0;      // samples a step
  int64_t samples = 0;    // consumed when the checkpoint was made
};
// Where it goes on, and what is not as it was.
std::vector<std::string> resume_lines(const LoadedCheckpoint& loaded, const ResumeFacts& run);

// What the GPU held at most: model states by the plan, the rest (`peak` bytes) by torch's allocator, beside the
// activations that were planned.
std::vector<std::string> gpu_memory_lines(const MemoryReport& memory, size_t peak, size_t planned);

// Bytes that states of the host moved in a step, how much of the GPU they pass through, and what the host updates.
std::vector<std::string> host_traffic_lines(const HostTraffic& host, int64_t steps, size_t ring_nbytes);

// Of a run that ends since its last steps were not finite.
std::string why_it_ends(const NonfiniteSteps& steps);

}  // namespace shoal::train
