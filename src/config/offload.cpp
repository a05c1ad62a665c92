// The sections "offload_param" and "offload_optimizer" inside zero_optimization. Nothing is offloaded yet: any device
// but "none" is refused, and the other keys, typed as DeepSpeed has them, have no effect.
#include <fmt/format.h>

#include "config/sections.h"
#include "config/settings.h"

namespace shoal::config {
namespace {

constexpr const char* kIdle = "nothing is offloaded";

std::string check_param_stage(const Value& value, const Settings& all) {
  const int64_t stage = all.value("zero_optimization.stage").as_integer();
  if (value.as_text() == "none" || stage == 3) return "";
  return fmt::format(
      "\"{}\" needs parameters that are sharded, and zero_optimization.stage is {}. Use stage 3, or "
      "remove offload_param.",
      value.as_text(), stage);
}

Key device_key() {
  return text("device", "none")
      .one_of({"none", "cpu", "nvme"})
      .is_refused("is not supported yet: Shoal cannot offload. Remove the section or set its device to \"none\".");
}

}  // namespace

std::vector<Section> offload_sections() {
  Section param{
      .path = "zero_optimization.offload_param",
      .meaning = "Parameters off the device, at stage 3.",
      .keys = {
          device_key().means("Where sharded parameters live.").must(check_param_stage),
          text("nvme_path", Value()).means("The folder for parameters on disk.").has_no_effect(kIdle),
          integer("buffer_count", 5)
              .at_least(1)
              .means("Buffers that parameters on disk pass through.")
              .has_no_effect(kIdle),
          integer("buffer_size", int64_t{100'000'000})
              .at_least(1)
              .in("elements")
              .means("The size of one buffer.")
              .has_no_effect(kIdle),
          integer("max_in_cpu", int64_t{1'000'000'000})
              .at_least(0)
              .in("elements")
              .means("Elements kept in host memory when parameters are on disk.")
              .has_no_effect(kIdle),
          boolean("pin_memory", true).means("Keep parameters in page-locked host memory.").has_no_effect(kIdle),
      }};
  Section optimizer{
      .path = "zero_optimization.offload_optimizer",
      .meaning = "Optimizer states off the device.",
      .keys = {
          device_key().means("Where optimizer states live."),
          text("nvme_path", Value()).means("The folder for states on disk.").has_no_effect(kIdle),
          integer("buffer_count", 4)
              .at_least(1)
              .means("Buffers that states on disk pass through.")
              .has_no_effect(kIdle),
          boolean("pin_memory", true).means("Keep states in page-locked host memory.").has_no_effect(kIdle),
          boolean("pipeline_read", false).means("Read the next tile while one is updated.").has_no_effect(kIdle),
          boolean("pipeline_write", false).means("Write the last tile while one is updated.").has_no_effect(kIdle),
          boolean("fast_init", false).means("Initialize states on disk faster.").has_no_effect(kIdle),
          number("ratio", 1.0)
              .at_least(0)
              .at_most(1)
              .means("The share of states that is offloaded.")
              .has_no_effect(kIdle),
          boolean("super_offload", false).means("DeepSpeed's update for tightly coupled hosts.").has_no_effect(kIdle),
          number("cpuadam_cores_perc", 0.8)
              .above(0)
              .at_most(1)
              .means("The share of cores that super_offload takes.")
              .has_no_effect(kIdle),
      }};
  param.nullable = optimizer.nullable = true;
  return {std::move(param), std::move(optimizer)};
}

}  // namespace shoal::config
