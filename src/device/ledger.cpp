// See ledger.h.
#include "device/ledger.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {

std::string_view name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::weights: return "weights";
    case MemoryKind::gradients: return "gradients";
    case MemoryKind::states: return "states";
    case MemoryKind::gather_arena: return "gather_arena";
    case MemoryKind::reduce_slots: return "reduce_slots";
    case MemoryKind::user_gather: return "user_gather";
    case MemoryKind::staging: return "staging";
    case MemoryKind::host_weights: return "host_weights";
    case MemoryKind::host_gradients: return "host_gradients";
    case MemoryKind::host_states: return "host_states";
    case MemoryKind::state_ring: return "state_ring";
    case MemoryKind::disk_weights: return "disk_weights";
    case MemoryKind::disk_states: return "disk_states";
    case MemoryKind::disk_buffers: return "disk_buffers";
    case MemoryKind::host_inputs: return "host_inputs";
    case MemoryKind::second_weights: return "second_weights";
    case MemoryKind::save_pictures: return "save_pictures";
  }
  return "?";
}

void Ledger::add(MemoryKind kind, size_t nbytes) {
  const std::lock_guard lock(mutex_);
  Line& line = lines_[static_cast<size_t>(kind)];
  line.nbytes += nbytes;
  line.peak = std::max(line.peak, line.nbytes);
}

void Ledger::remove(MemoryKind kind, size_t nbytes) {
  const std::lock_guard lock(mutex_);
  Line& line = lines_[static_cast<size_t>(kind)];
  SHOAL_CHECK_LE(nbytes, line.nbytes);
  line.nbytes -= nbytes;
}

Ledger::Line Ledger::line(MemoryKind kind) const {
  const std::lock_guard lock(mutex_);
  return lines_[static_cast<size_t>(kind)];
}

size_t Ledger::total_nbytes() const {
  const std::lock_guard lock(mutex_);
  size_t total = 0;
  for (const Line& line : lines_) total += line.nbytes;
  return total;
}

}  // namespace shoal
