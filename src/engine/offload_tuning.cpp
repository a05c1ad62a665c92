// See offload_tuning.h.
#include "engine/offload_tuning.h"

#include <fmt/format.h>

#include <cstdio>

#include "device/cuda.h"
#include "plan/ring_layout.h"
#include "shoal/error.h"

namespace shoal {

namespace {

constexpr int64_t kStepsBeforeGrowth = 2;

}  // namespace

void OffloadTuning::after_step() {
  if (++steps_ == kStepsBeforeGrowth) fit();
  if (steps_ == 1) say_if_unpinned();
}

// The steps so far have shown what the model needs: the ring of states takes a part of the rest, and the host updates
// what the ring cannot bring in time.
void OffloadTuning::fit() {
  const size_t ring = parts_.states.memory().ring_nbytes();
  if (!parts_.on_gpu() || ring == 0) return;
  const ShoalConfig& settings = parts_.config.shoal;
  parts_.stepper.settle_all();
  if (settings.offload_ring_size == 0) {
    const cuda::DeviceFacts gpu = cuda::facts_of(parts_.device.index());
    parts_.updater.grow_ring(grown_ring_nbytes(ring, gpu.free_nbytes, gpu.total_nbytes, parts_.ranks_on_gpu,
                                               static_cast<size_t>(settings.device_budget)));
  }
  if (settings.offload_update == OffloadUpdate::automatic && parts_.updater.can_share()) share_update();
}

// A wish: training goes on as it did where there is no memory to try it.
void OffloadTuning::share_update() {
  UpdateRates rates;
  int64_t shared = 0;
  try {
    rates = parts_.updater.measure_rates();
    shared = parts_.updater.share_with_host(rates);
  } catch (const Error& error) {
    fmt::print(stderr, "shoal: the host updates no states beside the GPU: {}\n", error.what());
  }
  if (shared == 0 || parts_.rank() != 0) return;
  fmt::print(stderr,
             "shoal: the host updates {:.3g} billion parameters beside the GPU (states come with {:.3g} GB/s, and the "
             "host updates {:.3g} billion parameters a second)\n",
             static_cast<double>(shared) * 1e-9, rates.bus_nbytes * 1e-9, rates.host_numel * 1e-9);
}

void OffloadTuning::say_if_unpinned() const {
  const auto say = [](const char* what, const std::string& why) {
    if (!why.empty()) fmt::print(stderr, "shoal: copies of {} are slow: host memory is not pinned: {}\n", what, why);
  };
  say("states", parts_.states.memory().unpinned_because());
  say("gradients", parts_.gradients.unpinned_because());
}

}  // namespace shoal
