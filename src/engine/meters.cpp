// See meters.h.
#include "engine/meters.h"

#include "plan/from_config.h"
#include "plan/memory.h"

namespace shoal {

MemoryReport Meters::memory() const {
  const Ledger& ledger = *parts_.ledger;
  MemoryReport report;
  MemoryOptions planned = memory_options(parts_.config, parts_.on_gpu());
  planned.gradients = parts_.gradients.options();
  report.planned = plan_memory(parts_.layout, planned);
  report.held.weights = ledger.line(MemoryKind::weights).nbytes;
  report.held.gradients = ledger.line(MemoryKind::gradients).nbytes;
  report.held.states = ledger.line(MemoryKind::states).nbytes;
  report.held.gather_arena = ledger.line(MemoryKind::gather_arena).nbytes;
  report.held.reduce_slots = ledger.line(MemoryKind::reduce_slots).nbytes;
  report.held.state_ring = ledger.line(MemoryKind::state_ring).nbytes;
  report.held.host_weights = ledger.line(MemoryKind::host_weights).nbytes;
  report.held.host_gradients = ledger.line(MemoryKind::host_gradients).nbytes;
  report.held.host_states = ledger.line(MemoryKind::host_states).nbytes;
  report.held.disk_weights = ledger.line(MemoryKind::disk_weights).nbytes;
  report.held.disk_states = ledger.line(MemoryKind::disk_states).nbytes;
  report.held.disk_buffers = ledger.line(MemoryKind::disk_buffers).nbytes;
  report.user_gathered = ledger.line(MemoryKind::user_gather).nbytes;
  report.host_activations = ledger.line(MemoryKind::host_inputs).nbytes;
  return report;
}

Traffic Meters::traffic() const {
  const Traffic weights = parts_.weights_channel->traffic();
  const Traffic gradients = parts_.gradients_channel->traffic();
  return {weights.sent_nbytes + gradients.sent_nbytes, weights.received_nbytes + gradients.received_nbytes,
          weights.collectives + gradients.collectives};
}

double Meters::waited_seconds() const {
  const Channel &weights = *parts_.weights_channel, &gradients = *parts_.gradients_channel;
  const double threads = weights.waited_seconds() + gradients.waited_seconds();
  if (parts_.layout.mesh.world() == 1) return threads;
  return threads + gradients.held_seconds() + (parts_.weights.is_off_device() ? 0 : weights.held_seconds());
}

double Meters::host_seconds() const {
  return parts_.updater.held_seconds() + parts_.gradients.held_seconds() +
         (parts_.weights.is_off_device() ? parts_.weights_channel->held_seconds() : 0);
}

DiskTraffic Meters::disk() const {
  DiskTraffic sum;
  for (const ScratchFile* file : {parts_.states.memory().file(), parts_.weights.file()}) {
    if (file == nullptr) continue;
    const DiskFile::Counters counters = file->counters();
    sum.read_nbytes += counters.read_nbytes;
    sum.written_nbytes += counters.written_nbytes;
    sum.waited_seconds += counters.waited_seconds;
  }
  return sum;
}

HostTraffic Meters::host() const {
  const PacedCopies::Counters counters = parts_.states.memory().streamed();
  const HostUpdates::Ahead ahead = parts_.updater.ahead();
  return {.to_device_nbytes = counters.brought_nbytes,
          .to_host_nbytes = counters.taken_nbytes,
          .waited_seconds = host_seconds(),
          .host_updated_numel = parts_.updater.host_updated_numel(),
          .ahead_numel = ahead.updated_numel,
          .taken_ahead_numel = ahead.taken_numel};
}

void Meters::count_waits(StepTimes& times) {
  const double disk_now = disk().waited_seconds, host_now = host_seconds();
  times.disk = disk_now - disk_before_;
  times.host = host_now - host_before_;
  disk_before_ = disk_now;
  host_before_ = host_now;
}

}  // namespace shoal
