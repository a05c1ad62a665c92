// See plan_text.h.
#include "plan/plan_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/quantity.h"
#include "base/text.h"
#include "plan/from_config.h"
#include "plan/quantized_text.h"
#include "plan/traffic.h"

namespace shoal {

namespace {

StepTraffic traffic_of(const PlanReport& report) {
  LayoutOptions options = layout_options(report.config, report.world);
  if (report.subject.count_only) options.persistence_threshold = 0;
  return plan_traffic(lay_out(report.subject.units, options), report.config);
}

std::string fits_word(const PlanReport& report, const StagePlan& plan) {
  if (!report.budget.given()) return "";
  return fits(plan, report.budget) ? "yes" : "no";
}

std::string heading(const PlanReport& report) {
  const PlanSubject& subject = report.subject;
  std::string text = fmt::format("{}: {} parameters", subject.name, format_count(subject.numel()));
  if (const int64_t trained = subject.trained_numel(); trained < subject.numel()) {
    text += fmt::format(", {} of them trained ({:.3g} %)", format_count(trained),
                        100 * static_cast<double>(trained) / static_cast<double>(subject.numel()));
  }
  if (!subject.count_only) text += fmt::format(" in {} units", subject.units.size());
  text += fmt::format(", {}, {} rank{}", name_of(report.config.precision), report.world, report.world == 1 ? "" : "s");
  if (!report.workload.empty()) text += ", " + report.workload;
  return text + "\n";
}

// The stage of the config is marked with a star.
std::string stage_cell(const PlanReport& report, int stage) {
  return fmt::format("{}{}", stage, stage == report.config.zero.stage ? "*" : " ");
}

// What the config's offload sections put elsewhere; nothing without them.
std::string offloaded_table(const PlanReport& report) {
  std::string text;
  const auto plans = plan_stages(report.subject, report.config, report.world, report.budget.device.has_value());
  const bool with_gradients =
      std::any_of(plans.begin(), plans.end(), [](const StagePlan& plan) { return plan.memory.host_gradients > 0; });
  for (const StagePlan& plan : plans) {
    if (plan.host_total() + plan.memory.disk_total() == 0) continue;
    const bool with_activations = plan.host_activations > 0;
    const bool with_weights = report.config.zero.offload_param.tier_in_use() == Tier::disk;
    if (text.empty()) {
      text =
          fmt::format("\noff the device, bytes a rank\n\n{:<6}{:>16}{}{:>16}{:>16}{}{:>16}{}\n", "stage",
                      "host weights", with_gradients ? "  host gradients" : "", "host states", "disk buffers",
                      with_weights ? "    disk weights" : "", "disk states", with_activations ? "    activations" : "");
    }
    const auto cell_if = [](bool shown, size_t nbytes) {
      return shown ? fmt::format("{:>16}", format_nbytes(nbytes)) : "";
    };
    text += fmt::format("{:<6}{:>16}{}{:>16}{:>16}{}{:>16}{}\n", stage_cell(report, plan.stage),
                        format_nbytes(plan.memory.host_weights), cell_if(with_gradients, plan.memory.host_gradients),
                        format_nbytes(plan.memory.host_states), format_nbytes(plan.memory.disk_buffers),
                        cell_if(with_weights, plan.memory.disk_weights), format_nbytes(plan.memory.disk_states),
                        with_activations ? fmt::format("{:>15}", format_nbytes(plan.host_activations)) : "");
  }
  return text;
}

// What of the weights is frozen; nothing where all are trained.
std::string frozen_table(const PlanReport& report) {
  if (report.subject.trained_numel() == report.subject.numel()) return "";
  std::string text = fmt::format("\nof the weights, bytes a rank\n\n{:<6}{:>16}{:>16}\n", "stage", "frozen", "trained");
  for (const StagePlan& plan :
       plan_stages(report.subject, report.config, report.world, report.budget.device.has_value())) {
    text += fmt::format("{:<6}{:>16}{:>16}\n", stage_cell(report, plan.stage), format_nbytes(plan.frozen_weights),
                        format_nbytes(plan.trained_weights));
  }
  return text;
}

std::string states_table(const PlanReport& report) {
  std::string text = "\nbytes a rank (* the config's stage)\n\n";
  const bool budget = report.budget.given();
  text += fmt::format("{:<6}{:>12}{:>12}{:>12}{:>12}{:>12}{:>13}{:>12}{}\n", "stage", "weights", "gradients",
                      "optimizer", "gathered", "buffers", "activations", "total", budget ? "  fits" : "");
  for (const StagePlan& plan :
       plan_stages(report.subject, report.config, report.world, report.budget.device.has_value())) {
    text += fmt::format(
        "{:<6}{:>12}{:>12}{:>12}{:>12}{:>12}{:>13}{:>12}", stage_cell(report, plan.stage),
        format_nbytes(plan.memory.weights), format_nbytes(plan.memory.gradients), format_nbytes(plan.memory.states),
        format_nbytes(plan.memory.gather_arena), format_nbytes(plan.memory.reduce_slots + plan.memory.state_ring),
        format_nbytes(plan.activations), format_nbytes(report.budget.device ? plan.total() : plan.total_on_host()));
    text += budget ? fmt::format("  {}\n", fits_word(report, plan)) : "\n";
  }
  return text + frozen_table(report) + offloaded_table(report);
}

// What the config's groups make of the ranks, and where it is known which share a host, what travels by link. Nothing
// for ranks along one axis of one host.
std::string mesh_lines(const PlanReport& report) {
  const Mesh mesh = mesh_of(report.config, report.world);
  std::string text;
  if (mesh.axes().size() > 1) text += fmt::format("\nmesh: {}\n", mesh.to_text());
  const StagePlan plan = plan_stage(report.subject, report.config, report.world, report.budget.device.has_value());
  if (plan.memory.second_weights > 0) {
    text += fmt::format("{} of weights ({}): {} a rank, in the total\n",
                        keeps_second_copy(report.config) ? "second copy" : "int8 copy of a rank's part",
                        keeps_second_copy(report.config)       ? "zero_hpz_partition_size"
                        : report.config.zero.quantized_weights ? "zero_quantized_weights"
                                                               : "zero_quantized_nontrainable_weights",
                        format_nbytes(plan.memory.second_weights));
  }
  LayoutOptions cut = layout_options(report.config, report.world);
  if (report.subject.count_only) cut.persistence_threshold = 0;
  const ModelLayout layout = lay_out(report.subject.units, cut);
  if (const std::string quantized = quantized_text(layout, report.config); !quantized.empty()) {
    text += fmt::format("quantized: {}{}\n", quantized,
                        report.budget.device ? "; a run on GPUs refuses it: there are no kernels for them yet" : "");
  }
  if (report.config.shoal.ranks_per_host == 0) return text;
  const StepTraffic traffic = traffic_of(report);
  return text + fmt::format("{}a step each rank sends {} inside its host and {} between hosts\n",
                            text.empty() ? "\n" : "", format_nbytes(traffic.inside_hosts()),
                            format_nbytes(traffic.between_hosts));
}

// Ranks over which the states of the config's stage are cut.
int ranks_of_states(const PlanReport& report) {
  const Mesh mesh = mesh_of(report.config, report.world);
  return stage_of(report.config).row.states == Over::shard ? mesh.shards() : report.world;
}

double classic_of(const PlanReport& report, int stage) {
  const int64_t trained = report.subject.trained_numel();
  return classic_nbytes(trained, stage, ranks_of_states(report), report.subject.numel() - trained);
}

// Model states alone: the classic arithmetic beside ours.
std::string classic_table(const PlanReport& report) {
  const auto plans = plan_stages(report.subject, report.config, report.world, report.budget.device.has_value());
  const bool budget = report.budget.given() && report.subject.count_only;
  std::string text =
      fmt::format("\nmodel states a rank: mixed precision Adam by the book, and as Shoal holds them in {}\n\n",
                  name_of(report.config.precision));
  text += fmt::format("{:<6}{:>16}{:>16}{}\n", "stage", "2 + 2 + 12", "Shoal", budget ? "  fits" : "");
  for (const StagePlan& plan : plans) {
    text += fmt::format("{:<6}{:>16}{:>16}", stage_cell(report, plan.stage),
                        format_nbytes(static_cast<uint64_t>(classic_of(report, plan.stage))),
                        format_nbytes(plan.memory.model_states()));
    text += budget ? fmt::format("  {}\n", fits_word(report, plan)) : "\n";
  }
  return text;
}

// Where there is memory to fit into, and more to give than the config that was planned with.
std::string settings_text(const PlanReport& report) {
  if (!report.settings || !report.budget.given()) return "";
  const PlanSettings& settings = *report.settings;
  if (settings.overrides.empty()) return "";
  std::string beside;
  for (const std::string& flag : settings.flags) beside += " " + flag;
  return fmt::format("\nAs settings: {}\nAs a config{}:\n{}\n", command_words(settings),
                     beside.empty() ? "" : ", beside" + beside, json::write(settings.config, 2));
}

json::Value settings_json(const PlanReport& report) {
  if (!report.settings) return {};
  const PlanSettings& settings = *report.settings;
  return json::Object{{"set", json::Array(settings.overrides.begin(), settings.overrides.end()), {}},
                      {"flags", json::Array(settings.flags.begin(), settings.flags.end()), {}},
                      {"config", settings.config, {}}};
}

json::Value number(size_t nbytes) { return static_cast<int64_t>(nbytes); }

}  // namespace

std::string plan_text(const PlanReport& report) {
  std::string text = heading(report);
  for (const std::string& note : report.notes) text += note + "\n";
  if (!report.subject.count_only) text += states_table(report);
  text += mesh_lines(report);
  text += classic_table(report);
  if (report.subject.count_only) {
    text += "\nGathered units, buffers and activations depend on the model: give --model to count them.\n";
  }
  const std::vector<std::string> lines = advise(report.subject, report.config, report.world, report.budget).lines;
  if (!lines.empty()) text += "\n";
  for (const std::string& line : lines) text += line + "\n";
  return text + settings_text(report);
}

std::string plan_json(const PlanReport& report) {
  const auto plans = plan_stages(report.subject, report.config, report.world, report.budget.device.has_value());
  json::Array stages;
  for (const StagePlan& plan : plans) {
    json::Object stage = {{"stage", plan.stage, {}},
                          {"weights", number(plan.memory.weights), {}},
                          {"gradients", number(plan.memory.gradients), {}},
                          {"optimizer", number(plan.memory.states), {}},
                          {"model_states", number(plan.memory.model_states()), {}},
                          {"gathered", number(plan.memory.gather_arena), {}},
                          {"buffers", number(plan.memory.reduce_slots), {}},
                          {"state_ring", number(plan.memory.state_ring), {}},
                          {"second_weights", number(plan.memory.second_weights), {}},
                          {"activations", number(plan.activations), {}},
                          {"host_activations", number(plan.host_activations), {}},
                          {"total", number(plan.total()), {}},
                          {"host_weights", number(plan.memory.host_weights), {}},
                          {"host_gradients", number(plan.memory.host_gradients), {}},
                          {"host_states", number(plan.memory.host_states), {}},
                          {"disk_buffers", number(plan.memory.disk_buffers), {}},
                          {"save_pictures", number(plan.memory.save_pictures), {}},
                          {"disk_weights", number(plan.memory.disk_weights), {}},
                          {"disk_states", number(plan.memory.disk_states), {}},
                          {"frozen_weights", number(plan.frozen_weights), {}},
                          {"trained_weights", number(plan.trained_weights), {}},
                          {"classic_model_states", classic_of(report, plan.stage), {}}};
    if (report.budget.given()) stage.push_back({"fits", fits(plan, report.budget), {}});
    stages.emplace_back(std::move(stage));
  }
  const StepTraffic traffic = traffic_of(report);
  json::Array notes(report.notes.begin(), report.notes.end());
  const Advice advice = advise(report.subject, report.config, report.world, report.budget);
  json::Array lines(advice.lines.begin(), advice.lines.end());
  const json::Object root = {{"subject", report.subject.name, {}},
                             {"parameters", report.subject.numel(), {}},
                             {"trained_parameters", report.subject.trained_numel(), {}},
                             {"world", report.world, {}},
                             {"mesh", mesh_of(report.config, report.world).to_text(), {}},
                             {"sent_inside_host", static_cast<int64_t>(traffic.inside_hosts()), {}},
                             {"sent_between_hosts", static_cast<int64_t>(traffic.between_hosts), {}},
                             {"precision", std::string(name_of(report.config.precision)), {}},
                             {"stage", report.config.zero.stage, {}},
                             {"count_only", report.subject.count_only, {}},
                             {"notes", std::move(notes), {}},
                             {"stages", std::move(stages), {}},
                             {"advice", std::move(lines), {}},
                             {"settings", settings_json(report), {}}};
  return json::write(root, 2) + "\n";
}

}  // namespace shoal
