// Bytes of one rank, by what they are for. The planner fills one before anything is allocated, the engine reports
// another from its ledger; for weights, gradients and states the two are equal to the byte.
#pragma once

#include <cstddef>
#include <string>

namespace shoal {

struct MemoryPlan {
  size_t weights = 0;       // in the model's dtype
  size_t gradients = 0;     // kept until the update
  size_t states = 0;        // master remainder or copy, and moments
  size_t gather_arena = 0;  // stage 3: gathered units, at most at one time
  // Gradients on their way to the reduction, and from it to host memory; over NCCL also those received for it.
  size_t reduce_slots = 0;
  size_t state_ring = 0;      // on a GPU: states and weights of the host on their way to the update and back
  size_t second_weights = 0;  // stage 3 with zero_hpz_partition_size: a copy cut inside groups
  // Off the device:
  size_t host_weights = 0;
  size_t host_gradients = 0;
  size_t host_states = 0;
  size_t disk_weights = 0;  // on disk, in whole pages
  size_t disk_states = 0;   // the same
  size_t disk_buffers = 0;  // in host memory, for both on their way
  // In host memory: a picture of what is saved behind training. Planned where shoal.save_memory is given, at most so
  // much; without it a picture takes what is free when it is needed.
  size_t save_pictures = 0;

  size_t model_states() const { return weights + gradients + states; }
  // Of the device.
  size_t total() const { return model_states() + gather_arena + reduce_slots + state_ring + second_weights; }
  size_t host_total() const { return host_weights + host_gradients + host_states + disk_buffers + save_pictures; }
  size_t disk_total() const { return disk_weights + disk_states; }
  bool operator==(const MemoryPlan&) const = default;
};

// A small table with one line a kind.
std::string to_text(const MemoryPlan& plan);

}  // namespace shoal
