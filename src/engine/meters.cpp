// See meters.h.
#include "engine/meters.h"

#include "comm/group/full_group.h"
#include "plan/from_config.h"
#include "plan/memory.h"

namespace shoal {

MemoryReport Meters::memory() const {
  const Ledger& ledger = *parts_.ledger;
  MemoryReport report;
  MemoryOptions planned = memory_options(parts_.config, parts_.on_gpu());
  planned.gradients = parts_.gradients.options();
  const FullGroup& carries_gradients = full(parts_.gradients_channel->bytes());
  planned.receives_gradients = planned.receives_gradients && carries_gradients.receives();
  report.planned = plan_memory(parts_.layout, planned);
  report.held.weights = ledger.line(MemoryKind::weights).nbytes;
  report.held.gradients = ledger.line(MemoryKind::gradients).nbytes;
  report.held.states = ledger.line(MemoryKind::states).nbytes;
  report.held.gather_arena = ledger.line(MemoryKind::gather_arena).nbytes;
  report.held.reduce_slots = ledger.line(MemoryKind::reduce_slots).nbytes;
  if (planned.receives_gradients) {
    report.held.reduce_slots += carries_gradients.staging_nbytes() + parts_.gradients.groups().staging_nbytes();
  }
  report.held.state_ring = ledger.line(MemoryKind::state_ring).nbytes;
  report.held.second_weights = ledger.line(MemoryKind::second_weights).nbytes;
  report.held.host_weights = ledger.line(MemoryKind::host_weights).nbytes;
  report.held.host_gradients = ledger.line(MemoryKind::host_gradients).nbytes;
  report.held.host_states = ledger.line(MemoryKind::host_states).nbytes;
  report.held.disk_weights = ledger.line(MemoryKind::disk_weights).nbytes;
  report.held.disk_states = ledger.line(MemoryKind::disk_states).nbytes;
  report.held.disk_buffers = ledger.line(MemoryKind::disk_buffers).nbytes;
  report.user_gathered = ledger.line(MemoryKind::user_gather).nbytes;
  report.host_activations = ledger.line(MemoryKind::host_inputs).nbytes;
  report.held.save_pictures = ledger.line(MemoryKind::save_pictures).nbytes;
  return report;
}

Traffic Meters::traffic() const {
  Traffic sum = parts_.weights_channel->traffic();
  sum += parts_.gradients_channel->traffic();
  sum += parts_.weights.groups().traffic();
  sum += parts_.gradients.groups().traffic();
  return sum;
}

void Meters::log_collectives(bool on) const {
  parts_.weights_channel->log_collectives(on);
  parts_.gradients_channel->log_collectives(on);
}

std::vector<CollectiveRecord> Meters::take_collectives() const {
  std::vector<CollectiveRecord> records = parts_.weights_channel->take_collectives();
  for (CollectiveRecord& record : parts_.gradients_channel->take_collectives()) records.push_back(std::move(record));
  return records;
}

std::string Meters::transport() const { return parts_.weights_channel->bytes().transport_name(); }

CommTimes Meters::comm_times() const {
  const Channel &weights = *parts_.weights_channel, &gradients = *parts_.gradients_channel;
  CommTimes times = {weights.waited_seconds() + parts_.weights.groups().waited_seconds(),
                     gradients.waited_seconds() + parts_.gradients.groups().waited_seconds(), 0};
  if (parts_.layout.mesh.world() == 1) return times;
  times.gradients_seconds += gradients.held_seconds();
  if (!parts_.weights.is_off_device()) times.weights_seconds += weights.held_seconds();
  times.carried_seconds = weights.carried_seconds() + parts_.weights.groups().carried_seconds() +
                          gradients.carried_seconds() + parts_.gradients.groups().carried_seconds();
  return times;
}

double Meters::waited_seconds() const {
  const CommTimes times = comm_times();
  return times.weights_seconds + times.gradients_seconds;
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
