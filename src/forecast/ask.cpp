// See ask.h.
#include "forecast/ask.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "plan/from_config.h"
#include "plan/memory.h"
#include "shoal/error.h"

namespace shoal::forecast {

namespace {

// Bytes of GPU memory that the update of one element reads and writes: weight, masters and moments both ways, and its
// gradient, which the norm reads once more.
double update_nbytes(const Config& config) {
  const DType dtype = dtype_of(config.precision);
  const auto states =
      static_cast<double>(static_cast<size_t>(moments_of(config.optimizer)) * nbytes_of(moment_dtype(config)) +
                          master_nbytes(dtype, has_narrow_masters(config)));
  const auto gradient = static_cast<double>(config.batch.accumulation_steps > 1 ? 4 : nbytes_of(dtype));
  return 2 * states + 2 * static_cast<double>(nbytes_of(dtype)) + 2 * gradient;
}

void check_numbers(const Ask& ask, const StepQuestion& question) {
  const Gpu& gpu = ask.cluster.gpu;
  const auto missing = [&](const char* what, const char* why) {
    throw Error("cluster",
                fmt::format("{} of {} is 0 or not given, and {}. Give it in the cluster file.", what, gpu.name, why));
  };
  if (gpu.memory_bandwidth <= 0) missing("the memory bandwidth", "every step reads and writes memory");
  const bool wide = ask.work.dtype == DType::f32;
  if ((wide ? gpu.fp32_flops : gpu.bf16_flops) <= 0)
    missing(wide ? "fp32_tflops" : "bf16_tflops", "the run computes in it");
  if (ask.work.fp8 && gpu.fp8_flops <= 0) missing("fp8_tflops", "the run computes in it");
  if (ask.world > 1 && ask.cluster.inside.bandwidth <= 0 && ask.cluster.gpus_per_host > 1) {
    missing("the bandwidth of the link inside a host", "ranks talk over it");
  }
  if (ask.world > ask.cluster.gpus_per_host && ask.cluster.between.bandwidth <= 0) {
    missing("the bandwidth between hosts", "ranks talk over it");
  }
  for (const UnitOffload& unit : question.offload.units) {
    if (unit.streamed + unit.host_numel + unit.weights > 0 && ask.cluster.host.bus <= 0) {
      missing("host.bus_gbytes_per_second", "states or weights are in host memory");
    }
    if (unit.host_numel > 0 && ask.cluster.host.memory_bandwidth <= 0) {
      missing("host.memory_gbytes_per_second", "the host updates states");
    }
    if (unit.disk + unit.disk_weights > 0 && (ask.cluster.host.disk_read <= 0 || ask.cluster.host.disk_write <= 0)) {
      missing("host.disk_read_gbytes_per_second or host.disk_write_gbytes_per_second", "states or weights are on disk");
    }
  }
}

}  // namespace

std::string name_of(const Sharding& sharding) {
  switch (sharding.kind) {
    case Sharding::Kind::world: break;
    case Sharding::Kind::group: return fmt::format("groups of {}", sharding.ranks);
    case Sharding::Kind::second_copy: return fmt::format("hpZ of {}", sharding.ranks);
  }
  return "all ranks";
}

Config with_sharding(const Config& config, const Sharding& sharding) {
  Config cut = config;
  cut.zero.mics_shard_size = sharding.kind == Sharding::Kind::group ? sharding.ranks : -1;
  cut.zero.hpz_partition_size = sharding.kind == Sharding::Kind::second_copy ? sharding.ranks : 1;
  cut.zero.mics_hierarchical_gather = false;
  cut.shoal.shard_size = 0;
  return cut;
}

Sharding sharding_of(const Config& config, int world) {
  if (keeps_second_copy(config)) {
    const int ranks = config.zero.hpz_partition_size;
    return ranks < world ? Sharding{Sharding::Kind::second_copy, ranks} : Sharding{};
  }
  const int ranks = config.zero.stage == 0 ? 0 : ranks_of_a_copy(config, world);
  return ranks > 0 && ranks < world ? Sharding{Sharding::Kind::group, ranks} : Sharding{};
}

StepQuestion question_of(const Ask& ask, const Calibration& calibration) {
  StepQuestion question;
  const LayoutOptions options = layout_options(ask.config, ask.world);
  question.layout = lay_out(ask.subject.units, options);
  question.gradients = gradient_options(ask.config);
  question.limits = gather_limits(ask.config, question.layout);
  question.manner.exchanges = ask.config.shoal.reduce == Reduce::exact;
  question.manner.waits = !ask.config.zero.overlap_comm;
  question.manner.reduce_slots = reduce_slots(ask.config);
  if (keeps_second_copy(ask.config) && options.mesh.axes().size() > 1) question.manner.backward_from = Over::shard;
  if (ask.config.zero.quantized_weights) {
    const DType dtype = dtype_of(ask.config.precision);
    question.manner.gather_wire =
        static_cast<double>(Wire{dtype, 8}.nbytes(kBlockNumel)) / static_cast<double>(Wire{dtype}.nbytes(kBlockNumel));
  }
  question.units = unit_seconds(ask.shape, ask.work, ask.cluster.gpu, calibration);
  question.update_nbytes = update_nbytes(ask.config);
  question.cluster = ask.cluster;
  question.calibration = calibration;
  question.offload = offload_work(question.layout, ask.config, ask.cluster, calibration, ask.ring);
  check_numbers(ask, question);
  return question;
}

Forecast forecast_step(const Ask& ask, const Calibration& calibration) {
  const StepQuestion question = question_of(ask, calibration);
  Forecast forecast;
  forecast.micro_steps = std::max<int64_t>(1, ask.config.batch.accumulation_steps);
  forecast.time = step_time(question);
  forecast.rate = throughput(forecast.time, ask.shape, ask.work, forecast.micro_steps,
                             question.layout.mesh.data_ranks(), ask.cluster);
  return forecast;
}

}  // namespace shoal::forecast
