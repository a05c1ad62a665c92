// The sections "tensorboard", "csv_monitor" and "wandb": where the numbers of a run go. `shoal train` writes the first
// two itself (train/monitor_logs.h), the package deepspeed all three.
#include "config/sections.h"
#include "config/settings.h"

namespace shoal::config {
namespace {

// "" in the config's field, null or "" in the JSON.
template <typename Access>
Binding bound_to_name(Access access) {
  return {[access](Config& config, const Value& value) {
            access(config) = value.is_null() ? std::string() : value.as_text();
          },
          [access](const Config& config) { return access(config).empty() ? Value() : Value(access(config)); }};
}

// Of a monitor that writes files below a folder.
template <typename Access>
Section folder_monitor(std::string path, std::string meaning, std::string files, Access monitor) {
  return {
      .path = std::move(path),
      .meaning = std::move(meaning),
      .keys =
          {
              boolean("enabled", false)
                  .means("Write " + std::move(files) + ", on rank 0.")
                  .fills(bound_to([=](auto& c) -> auto& { return monitor(c).enabled; })),
              text("output_path", "")
                  .or_null()
                  .means(
                      "The folder that the job's folder is made in. Empty: the folder where the program was started; "
                      "in `shoal train` the run's own, --out, and the job's name is not used.")
                  .fills(bound_to_name([=](auto& c) -> auto& { return monitor(c).output_path; })),
              text("job_name", "DeepSpeedJobName")
                  .means("The name of the job's folder.")
                  .fills({[=](Config& c, const Value& value) { monitor(c).job_name = value.as_text(); },
                          [=](const Config& c) { return Value(monitor(c).job_name); }}),
          },
      .nullable = true};
}

Section wandb() {
  return {
      .path = "wandb",
      .meaning = "Metrics to Weights & Biases, by the Python package wandb.",
      .keys =
          {
              boolean("enabled", false)
                  .means(
                      "Log on rank 0 through the package wandb, which must be installed. `shoal train` has no Python "
                      "and refuses it: log to tensorboard, whose files `wandb sync` takes.")
                  .fills(bound_to([](auto& c) -> auto& { return c.monitor.wandb.enabled; })),
              text("group", Value()).means("The group of the run.").fills(bound_to_name([](auto& c) -> auto& {
                return c.monitor.wandb.group;
              })),
              text("team", Value())
                  .means("The team or user that the run belongs to: wandb's entity.")
                  .fills(bound_to_name([](auto& c) -> auto& { return c.monitor.wandb.team; })),
              text("project", "deepspeed")
                  .means("The project of the run.")
                  .fills({[](Config& c, const Value& value) { c.monitor.wandb.project = value.as_text(); },
                          [](const Config& c) { return Value(c.monitor.wandb.project); }}),
          },
      .nullable = true};
}

}  // namespace

std::vector<Section> monitor_sections() {
  return {folder_monitor(
              "tensorboard", "Metrics to TensorBoard.", "event files",
              [](auto& c) -> auto& { return c.monitor.tensorboard; }),
          folder_monitor(
              "csv_monitor", "Metrics to CSV files.", "a CSV file for each metric",
              [](auto& c) -> auto& { return c.monitor.csv; }),
          wandb()};
}

}  // namespace shoal::config
