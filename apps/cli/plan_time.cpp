// See plan_time.h.
#include "cli/plan_time.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "forecast/forecast_text.h"
#include "forecast/search.h"
#include "models/recompute.h"
#include "plan/from_config.h"
#include "shoal/error.h"

namespace shoal::cli {

namespace {

forecast::Workload workload_of(const TimeQuestion& question) {
  const models::ModelInfo& info = question.model->info();
  const models::RecomputedBlocks& blocks = question.model->recomputed();
  const auto layers = static_cast<double>(std::max<int64_t>(1, info.layers));
  return {.batch = question.step.batch,
          .time = question.step.time,
          .dtype = question.step.dtype,
          .fp8 = question.step.fp8,
          .full_recompute = static_cast<double>(blocks.full) / layers,
          .selective_recompute = static_cast<double>(blocks.selective) / layers};
}

std::string subject_line(const TimeQuestion& question) {
  const PlanReport& report = question.report;
  return fmt::format("{}: {} parameters, {}", report.subject.name, format_count(report.subject.numel()),
                     name_of(report.config.precision));
}

models::Recompute recompute_of(forecast::Recomputes recomputes) {
  switch (recomputes) {
    case forecast::Recomputes::none: break;
    case forecast::Recomputes::selective: return models::Recompute::selective;
    case forecast::Recomputes::full: return models::Recompute::full;
  }
  return models::Recompute::none;
}

}  // namespace

void add_time(CLI::App& verb, TimeOptions& options) {
  verb.add_flag("--time", options.time, "Say how long a step takes on --cluster, and what it consists of");
  verb.add_flag("--search", options.search,
                "Rank stage, shard size, micro-batch, recompute and offload that fit on --cluster, the fastest first");
  verb.add_option("--cluster", options.cluster,
                  fmt::format("A cluster file (docs/plan.md), or one of {}", join(forecast::cluster_names(), ", ")));
  verb.add_option("--hosts", options.hosts, "Hosts of the cluster; by default the file's, or as many as --world takes")
      ->check(CLI::Range(1, 1 << 16));
  verb.add_option("--gpus-per-host", options.gpus_per_host, "GPUs of a host; by default the cluster's")
      ->check(CLI::Range(1, 1 << 10));
  verb.add_option("--network", options.network, "Gb/s of a host to the others, as 400; by default the cluster's");
  verb.add_option("--inside", options.inside, "The link inside a host: NVLink or PCIe; by default the cluster's");
  verb.add_option("--global-batch", options.global_batch,
                  "--search: samples of a step of all ranks; by default one micro-batch a rank, however large")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
  verb.add_option("--max-batch", options.most_batch, "--search: the largest micro-batch to try")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  verb.add_option("--show", options.most, "--search: so many settings in the table")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
}

std::optional<forecast::Cluster> cluster_of(const TimeOptions& options, int world) {
  const TimeOptions defaults;
  for (const auto& [flag, given] : {std::pair("--global-batch", options.global_batch != defaults.global_batch),
                                    std::pair("--max-batch", options.most_batch != defaults.most_batch),
                                    std::pair("--show", options.most != defaults.most)}) {
    if (given && !options.search) throw Error(flag, "is for --search. Add it, or remove this.");
  }
  for (const auto& [flag, given] :
       {std::pair("--network", !options.network.empty()), std::pair("--inside", !options.inside.empty())}) {
    if (given && !options.asked()) throw Error(flag, "is for --time and --search. Add one of them, or remove this.");
  }
  if (options.cluster.empty()) {
    for (const auto& [flag, given] :
         {std::pair("--time", options.time), std::pair("--search", options.search),
          std::pair("--hosts", options.hosts > 0), std::pair("--gpus-per-host", options.gpus_per_host > 0),
          std::pair("--network", !options.network.empty()), std::pair("--inside", !options.inside.empty())}) {
      if (given) {
        throw Error(flag, fmt::format("needs a cluster. Give --cluster FILE, or one of {}.",
                                      join(forecast::cluster_names(), ", ")));
      }
    }
    return std::nullopt;
  }
  if (options.time && options.search) throw Error("--search", "and --time ask two things. Give one of them.");
  forecast::Cluster cluster = forecast::open_cluster(options.cluster);
  if (options.gpus_per_host > 0) cluster.gpus_per_host = options.gpus_per_host;
  if (options.hosts > 0) cluster.hosts = options.hosts;
  if (options.hosts == 0 && world > 0) cluster.hosts = (world + cluster.gpus_per_host - 1) / cluster.gpus_per_host;
  if (!options.inside.empty()) cluster.inside = forecast::inside_link(options.inside, cluster.gpu, "--inside");
  if (!options.network.empty()) cluster.between = forecast::between_link(options.network, "--network");
  if (world > cluster.gpus()) {
    throw Error("--world",
                fmt::format("{} ranks are more than {} hosts of {} GPUs have. Give {} or fewer, or more --hosts.",
                            world, cluster.hosts, cluster.gpus_per_host, cluster.gpus()));
  }
  if (cluster.gpus() > (1 << 16)) {
    throw Error("--hosts",
                fmt::format("{} GPUs are more than a forecast takes. Give {} or fewer.", cluster.gpus(), 1 << 16));
  }
  return cluster;
}

int ranks_of(const TimeOptions& /*options*/, const forecast::Cluster& cluster, int world) {
  return world > 0 ? world : cluster.gpus();
}

std::string with_time(const std::string& plan, const TimeQuestion& question) {
  const PlanReport& report = question.report;
  forecast::TimeReport time;
  time.subject = subject_line(question);
  time.cluster = question.cluster;
  time.world = report.world;
  time.stage = report.config.zero.stage;
  time.sharding = forecast::sharding_of(report.config, report.world);
  time.work = workload_of(question);
  time.recompute = models::describe(question.model->recomputed(), question.model->info().layers);
  time.forecast = forecast::forecast_step(
      {report.subject, report.config, question.model->info().shape, time.work, question.cluster, report.world});
  if (!question.json) return plan + "\n" + forecast::time_text(time);
  json::Value root = json::parse(plan, "plan");
  root.set("time", forecast::time_json(time));
  return json::write(root, 2) + "\n";
}

bool print_search(const TimeOptions& options, const TimeQuestion& question) {
  const PlanReport& report = question.report;
  const models::ModelInfo& info = question.model->info();
  forecast::SearchQuestion search{.subject = report.subject,
                                  .config = report.config,
                                  .written = question.written,
                                  .flags = question.flags,
                                  .shape = info.shape,
                                  .work = workload_of(question),
                                  .cluster = question.cluster,
                                  .world = report.world,
                                  .global_batch = options.global_batch,
                                  .most_batch = options.most_batch,
                                  .activations = {}};
  search.activations = [&](int64_t batch, forecast::Recomputes recomputes) {
    models::MicroStep step = question.step;
    step.batch = batch;
    const models::ActivationNbytes nbytes =
        question.model->activation_nbytes(step, models::blocks_of(recompute_of(recomputes), info.layers));
    return forecast::SearchQuestion::Activations{nbytes.device, nbytes.host};
  };
  forecast::SearchReport found{.subject = subject_line(question),
                               .cluster = question.cluster,
                               .world = report.world,
                               .work = search.work,
                               .answer = forecast::search(search),
                               .shown = static_cast<size_t>(options.most)};
  fmt::print("{}", question.json ? json::write(forecast::search_json(found), 2) + "\n" : forecast::search_text(found));
  return !found.answer.candidates.empty();
}

}  // namespace shoal::cli
