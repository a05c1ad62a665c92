// See step_meter.h.
#include "train/step_meter.h"

#include <ATen/DeviceAccelerator.h>

#include <utility>

namespace shoal::train {

StepMeter::Mark StepMeter::now() const {
  const MetersView meters = engine_.meters();
  return {Clock::now(),  meters.comm_times(), shared_seconds_, data_seconds_,
          meters.host(), meters.disk(),       meters.traffic()};
}

void StepMeter::start() {
  last_ = now();
  if (!std::exchange(started_, true)) first_ = all();
}

bool StepMeter::see(const PendingStep& step) {
  if (!step.known()) return false;
  ends_.push_back(now());
  return true;
}

RankTimes StepMeter::totals() const {
  const RankTimes now = all();
  return {now.comm - first_.comm, now.host - first_.host, now.disk - first_.disk, now.data - first_.data};
}

RankTimes StepMeter::all() const {
  const MetersView meters = engine_.meters();
  return {meters.waited_seconds() + shared_seconds_, meters.host().waited_seconds, meters.disk().waited_seconds,
          data_seconds_};
}

void StepMeter::take(int64_t tokens, StepMetrics& metrics) {
  Mark end;
  if (ends_.empty()) {
    end = now();
  } else {
    end = ends_.front();
    ends_.pop_front();
  }
  metrics.step_ms = std::chrono::duration<double, std::milli>(end.time - last_.time).count();
  metrics.tokens_per_s = static_cast<double>(tokens) / metrics.step_ms * 1e3;
  metrics.wait_weights_ms = (end.comm.weights_seconds - last_.comm.weights_seconds) * 1e3;
  metrics.wait_gradients_ms = (end.comm.gradients_seconds - last_.comm.gradients_seconds) * 1e3;
  metrics.wait_losses_ms = (end.shared - last_.shared) * 1e3;
  metrics.wait_comm_ms = metrics.wait_weights_ms + metrics.wait_gradients_ms + metrics.wait_losses_ms;
  metrics.carried_ms = (end.comm.carried_seconds - last_.comm.carried_seconds) * 1e3;
  metrics.data_ms = (end.data - last_.data) * 1e3;
  metrics.wait_host_ms = (end.host.waited_seconds - last_.host.waited_seconds) * 1e3;
  metrics.wait_disk_ms = (end.disk.waited_seconds - last_.disk.waited_seconds) * 1e3;
  metrics.host_to_gpu_nbytes = end.host.to_device_nbytes - last_.host.to_device_nbytes;
  metrics.gpu_to_host_nbytes = end.host.to_host_nbytes - last_.host.to_host_nbytes;
  metrics.disk_read_nbytes = end.disk.read_nbytes - last_.disk.read_nbytes;
  metrics.disk_written_nbytes = end.disk.written_nbytes - last_.disk.written_nbytes;
  metrics.sent_nbytes = end.traffic.sent_nbytes - last_.traffic.sent_nbytes;
  metrics.sent_between_hosts_nbytes = end.traffic.sent_between_hosts - last_.traffic.sent_between_hosts;
  last_ = end;
}

size_t peak_nbytes(at::Device device) {
  if (!device.is_cuda()) return 0;
  const auto stats = at::accelerator::getDeviceStats(device.index());
  return static_cast<size_t>(
      stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak);
}

}  // namespace shoal::train
