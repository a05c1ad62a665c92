// The sections "offload_param" and "offload_optimizer" inside zero_optimization.
#include <fmt/format.h>

#include <algorithm>

#include "config/sections.h"
#include "config/settings.h"

namespace shoal::config {
namespace {

std::string check_path(const Value& value, const Settings& all, const char* path_key) {
  if (value.as_text() != "nvme") return "";
  const Value path = all.value(path_key);
  if (!path.is_null() && !path.as_text().empty()) return "";
  return "\"nvme\" needs a folder on that disk. Give it as nvme_path.";
}

std::string check_states(const Value& value, const Settings& all) {
  return check_path(value, all, "zero_optimization.offload_optimizer.nvme_path");
}

std::string check_param(const Value& value, const Settings& all) {
  return check_path(value, all, "zero_optimization.offload_param.nvme_path");
}

// For keys of a section that speak of what its device may not do.
Rule only_with(const std::string& section, const std::vector<std::string>& devices) {
  return [section, devices](const Value&, const Settings& all) -> std::string {
    if (all.value("shoal.placement").as_text() != "config") return "";
    const std::string device = all.value(section + ".device").as_text();
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) return "";
    return fmt::format("has no effect while {}.device is {}", section, device);
  };
}

template <typename Access>
Binding bound_to_path(Access access) {
  return {[access](Config& config, const Value& value) { access(config) = value.is_null() ? "" : value.as_text(); },
          [access](const Config& config) {
            const std::string& path = access(config);
            return path.empty() ? Value() : Value(path);
          }};
}

Key pin_key(const char* what) {
  return boolean("pin_memory", true)
      .means(fmt::format("Keep {} in page-locked host memory.", what))
      .has_no_effect("what a GPU copies is page-locked wherever the system allows it, and nothing else is");
}

}  // namespace

std::vector<Section> offload_sections() {
  const auto of_param = [](auto& c) -> auto& { return c.zero.offload_param; };
  const auto of_states = [](auto& c) -> auto& { return c.zero.offload_optimizer; };
  Section param{
      .path = "zero_optimization.offload_param",
      .meaning = "Parameters off the device, at stage 3.",
      .keys = {
          text("device", "none")
              .one_of({"none", "cpu", "nvme"})
              .means("Where sharded parameters live: on the device, in host memory or on disk. Never "
                     "changes a bit.")
              .must(check_param)
              .fills(bound_to_choice([=](auto& c) -> auto& { return of_param(c).tier; }, {"none", "cpu", "nvme"})),
          text("nvme_path", Value())
              .means("The folder for parameters on disk. Each run makes a folder of its own there and removes it.")
              .warns(only_with("zero_optimization.offload_param", {"nvme"}))
              .fills(bound_to_path([=](auto& c) -> auto& { return of_param(c).nvme_path; })),
          integer("buffer_count", 5)
              .at_least(1)
              .at_most(1024)
              .means("Units of parameters that are in host memory on their way from or to the disk.")
              .warns(only_with("zero_optimization.offload_param", {"nvme"}))
              .fills(bound_to([=](auto& c) -> auto& { return of_param(c).buffer_count; })),
          integer("buffer_size", int64_t{100'000'000})
              .at_least(1)
              .in("elements")
              .means("The size of one buffer.")
              .has_no_effect("a buffer is as large as the largest unit that passes through it"),
          integer("max_in_cpu", int64_t{1'000'000'000})
              .at_least(0)
              .in("elements")
              .means(
                  "Elements of a rank's parameters that stay in host memory, the front units first; the disk has the "
                  "rest.")
              .warns(only_with("zero_optimization.offload_param", {"nvme"}))
              .fills(bound_to([=](auto& c) -> auto& { return of_param(c).max_in_cpu; })),
          number("ratio", 1.0)
              .at_least(0)
              .at_most(1)
              .means(
                  "The share of parameters that is offloaded, at least and in whole units; from the front on each unit "
                  "that still fits the rest stays. DeepSpeed has no such key.")
              .warns(only_with("zero_optimization.offload_param", {"cpu", "nvme"}))
              .fills(bound_to([=](auto& c) -> auto& { return of_param(c).ratio; })),
          pin_key("parameters"),
      }};
  Section optimizer{
      .path = "zero_optimization.offload_optimizer",
      .meaning = "Optimizer states off the device, at any stage.",
      .keys = {
          text("device", "none")
              .one_of({"none", "cpu", "nvme"})
              .means("Where optimizer states live: on the device, in host memory or on disk. Never changes a bit.")
              .must(check_states)
              .fills(bound_to_choice([=](auto& c) -> auto& { return of_states(c).tier; }, {"none", "cpu", "nvme"})),
          text("nvme_path", Value())
              .means("The folder for states on disk. Each run makes a folder of its own there and removes it.")
              .warns(only_with("zero_optimization.offload_optimizer", {"nvme"}))
              .fills(bound_to_path([=](auto& c) -> auto& { return of_states(c).nvme_path; })),
          integer("buffer_count", 4)
              .at_least(1)
              .at_most(1024)
              .means("Chunks of states that are in host memory on their way from or to the disk.")
              .warns(only_with("zero_optimization.offload_optimizer", {"nvme"}))
              .fills(bound_to([=](auto& c) -> auto& { return of_states(c).buffer_count; })),
          pin_key("states"),
          boolean("pipeline_read", false)
              .means("Read the next tile while one is updated.")
              .has_no_effect("reading always runs ahead of the update"),
          boolean("pipeline_write", false)
              .means("Write the last tile while one is updated.")
              .has_no_effect("writing always runs behind the update"),
          boolean("fast_init", false)
              .means("Initialize states on disk faster.")
              .has_no_effect("moments begin as preallocated zeros, and are not written"),
          number("ratio", 1.0)
              .at_least(0)
              .at_most(1)
              .means("The share of states that is offloaded, to 64 elements; what the next forward needs first stays.")
              .warns(only_with("zero_optimization.offload_optimizer", {"cpu", "nvme"}))
              .fills(bound_to([=](auto& c) -> auto& { return of_states(c).ratio; })),
          boolean("super_offload", false)
              .means("DeepSpeed's update on the host before the step is decided.")
              .has_no_effect("shoal.speculative_update with shoal.offload_update cpu is such an update here"),
          number("cpuadam_cores_perc", 0.8)
              .above(0)
              .at_most(1)
              .means("The share of cores that super_offload takes.")
              .has_no_effect("there is no super_offload"),
      }};
  param.nullable = optimizer.nullable = true;
  return {std::move(param), std::move(optimizer)};
}

}  // namespace shoal::config
