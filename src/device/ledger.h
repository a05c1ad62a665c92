// Who holds how many bytes. Fed by the allocation calls themselves (Slab), so it cannot forget one.
// One ledger per engine; safe to use from several threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace shoal {

// What a piece of memory is for. Weights, gradients and states are the model states of the ZeRO paper.
enum class MemoryKind : uint8_t {
  weights,         // flats or their shards, in the model's dtype
  gradients,       // what is kept of the gradients until the update
  states,          // master remainder or copy, and the optimizer's moments
  gather_arena,    // stage 3: slots for gathered flats
  reduce_slots,    // gradient flats on their way to the reduction, and from it to host memory
  user_gather,     // parameters gathered by the user
  staging,         // transports that must copy
  host_weights,    // of a tier below the device
  host_gradients,  // of what the host updates
  host_states,     // of a tier below the device
  state_ring,      // of the device, for states and weights of the host on their way to the update and back
  disk_weights,    // bytes of a file
  disk_states,     // bytes of a file
  disk_buffers,    // in host memory, for what is on its way from or to the disk
  host_inputs,     // of recomputed regions, in host memory until backward
  second_weights,  // stage 3: a second copy of weights, cut over the shard axis of the mesh
  save_pictures,   // in host memory, of states that are saved behind training
};
inline constexpr size_t kMemoryKinds = 17;

std::string_view name_of(MemoryKind kind);

class Ledger {
 public:
  struct Line {
    size_t nbytes = 0;  // held now
    size_t peak = 0;    // most ever held
  };

  void add(MemoryKind kind, size_t nbytes);
  void remove(MemoryKind kind, size_t nbytes);
  Line line(MemoryKind kind) const;
  size_t total_nbytes() const;

 private:
  mutable std::mutex mutex_;
  std::array<Line, kMemoryKinds> lines_{};
};

}  // namespace shoal
