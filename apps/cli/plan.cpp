// `shoal plan`: bytes a rank at every stage, does it fit, what would. Opens the model without memory; the counting is
// in plan/stage_plans.h, the text in plan/plan_text.h.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "cli/lora_flag.h"
#include "cli/plan_time.h"
#include "cli/recompute_flag.h"
#include "cli/verbs.h"
#include "engine/blueprint.h"
#include "models/open_model.h"
#include "plan/from_config.h"
#include "plan/plan_text.h"
#include "train/auto_recompute.h"
#include "train/prepare.h"
#include "train/run_config.h"

namespace shoal::cli {

namespace {

constexpr int kDoesNotFit = 3;
constexpr const char* kBf16 = "bf16.enabled=true";

struct PlanOptions {
  std::string model, params, config, lora;
  std::vector<std::string> overrides;
  int world = 0;
  int ranks_per_host = 0;
  std::string gpu_memory, host_memory;
  int64_t batch = 0, sequence = 0;
  std::string recompute = "none";
  bool json = false;
  TimeOptions time;
};

// Nobody trains in fp32 on a GPU, and arithmetic by the count alone is of 16-bit weights. What the user says comes
// first.
bool assumes_bf16(const PlanOptions& options) {
  const auto says_precision = [](const std::string& setting) {
    return setting.starts_with("bf16") || setting.starts_with("fp16");
  };
  return options.config.empty() && (!options.params.empty() || !options.gpu_memory.empty()) &&
         std::none_of(options.overrides.begin(), options.overrides.end(), says_precision);
}

// What was decided and not by the user.
std::vector<std::string> notes_of(const PlanOptions& options) {
  std::vector<std::string> notes;
  if (const std::string clash = models::name_clash(options.model); !clash.empty()) notes.push_back(clash + ".");
  if (assumes_bf16(options)) {
    notes.push_back(fmt::format(
        "No --config: counted in bf16. Without a config shoal train is fp32: give it --set {} too.", kBf16));
  }
  return notes;
}

HostMemory memory_of(const PlanOptions& options) {
  HostMemory memory;
  memory.ranks_per_host = options.ranks_per_host > 0 ? options.ranks_per_host : options.world;
  if (!options.gpu_memory.empty()) memory.gpu = parse_nbytes(options.gpu_memory, "--gpu-memory");
  if (!options.host_memory.empty()) memory.host = parse_nbytes(options.host_memory, "--host-memory");
  return memory;
}

train::TrainOptions run_of(const PlanOptions& options) {
  train::TrainOptions run;
  run.config_path = options.config;
  run.overrides = options.overrides;
  if (assumes_bf16(options)) run.overrides.insert(run.overrides.begin(), kBf16);
  run.steps = 1;  // a plan has no steps; schedules that want their number get one
  return run;
}

Config read_config(const PlanOptions& options, int64_t hidden_size) {
  Config config = train::make_run_config(run_of(options), options.world, hidden_size).config;
  const bool has_hosts = options.ranks_per_host > 0 && options.ranks_per_host < options.world;
  if (!has_hosts) return config;
  std::vector<int> hosts;  // the last may have fewer ranks, as in a run
  for (int rank = 0; rank < options.world; ++rank) hosts.push_back(rank / options.ranks_per_host);
  return with_hosts(config, hosts);
}

// What is left to ask for, the heaviest first: more recomputed, inputs on the host, then the smallest micro-batch too.
std::vector<LighterWork> lighter_work(const PlanOptions& options, const models::LanguageModel& model,
                                      const models::MicroStep& step) {
  using models::Recompute;
  std::vector<LighterWork> lighter;
  const auto add = [&](const std::string& flags, Recompute recompute, const models::MicroStep& of) {
    const models::ActivationNbytes nbytes = model.activation_nbytes(of, blocks_of(recompute, model.info().layers));
    lighter.push_back({flags, nbytes.device, nbytes.host});
  };
  const Recompute asked = recompute_named(options.recompute);
  if (asked == Recompute::none) add("--recompute selective", Recompute::selective, step);
  models::MicroStep least = step;
  std::string flags = asked == Recompute::full ? "" : "--recompute full";
  if (asked != Recompute::full) add(flags, Recompute::full, step);
  if (step.device == at::kCUDA && !step.inputs_on_host) {
    least.inputs_on_host = true;
    flags += std::string(flags.empty() ? "" : " ") + "--set activation_checkpointing.cpu_checkpointing=true";
    add(flags, Recompute::full, least);
  }
  if (step.batch > 1) {
    least.batch = 1;
    add(flags + (flags.empty() ? "" : " ") + "--set train_micro_batch_size_per_gpu=1", Recompute::full, least);
    lighter.back().smaller_batch = true;
  }
  return lighter;
}

struct Planned {
  PlanReport report;
  std::unique_ptr<models::LanguageModel> model;  // null: only the number of parameters is known
  models::MicroStep step;
};

Planned plan_model(const PlanOptions& options) {
  const models::Recompute recompute = recompute_named(options.recompute);
  Planned planned;
  std::optional<models::LoraSpec> lora;
  if (!options.lora.empty()) lora = models::parse_lora(options.lora);
  planned.model = models::open_model(options.model, {.recompute = recompute, .lora = lora});
  const auto& model = planned.model;
  const models::ModelInfo& info = model->info();
  PlanReport& report = planned.report;
  report.config = read_config(options, info.hidden);
  models::MicroStep& step = planned.step;
  step.batch = options.batch > 0 ? options.batch : report.config.batch.micro_batch_size;
  step.time = train::sequence_for(options.sequence, info);
  step.dtype = dtype_of(report.config.precision);
  // With GPU memory to fit into, the ranks live on GPUs.
  step.device = options.gpu_memory.empty() ? at::kCPU : at::kCUDA;
  step.inputs_on_host = report.config.inputs_on_host;
  step.fp8 = report.config.fp8.enabled;
  report.subject.name = info.name;
  report.subject.units = make_blueprint(model->units(), report.config, 1).specs;
  if (recompute == models::Recompute::automatic) {
    if (options.gpu_memory.empty()) {
      throw Error("--recompute",
                  "auto keeps what fits into the GPU's memory. Say how much there is: --gpu-memory 80GiB.");
    }
    const size_t room = budget_of(memory_of(options)).device.value();
    model->set_recomputed(train::choose_recompute({*model, step, report.config, options.world, room}).blocks);
  }
  const models::ActivationNbytes activations = model->activation_nbytes(step);
  report.subject.activations = activations.device;
  report.subject.host_activations = activations.host;
  report.subject.lighter = lighter_work(options, *model, step);
  report.workload = fmt::format("micro-batch of {} x {} tokens", step.batch, step.time);
  const std::string recomputed = models::describe(model->recomputed(), info.layers);
  if (recomputed != "none") report.workload += ", recompute " + recomputed;
  return planned;
}

Planned plan_count(const PlanOptions& options) {
  Planned planned;
  PlanReport& report = planned.report;
  const int64_t numel = parse_count(options.params, "--params");
  report.config = read_config(options, 0);
  report.subject = subject_of_count(numel, report.config.precision);
  return planned;
}

Planned plan_of(const PlanOptions& options) {
  return options.model.empty() ? plan_count(options) : plan_model(options);
}

// What was asked for by flags of the plan, and then what the advice adds to make it fit.
std::string words_of(const PlanOptions& options, const PlanReport& report, const std::string& advised) {
  std::string words;
  if (options.recompute != "none") words += fmt::format("--recompute {} ", options.recompute);
  if (!options.lora.empty()) words += fmt::format("--lora {} ", options.lora);
  if (options.sequence > 0) words += fmt::format("--sequence {} ", options.sequence);
  if (options.batch > 0 && options.batch != report.config.batch.micro_batch_size) {
    words += fmt::format("--set train_micro_batch_size_per_gpu={} ", options.batch);
  }
  return words + advised;
}

// Planned once more by themselves: a smaller micro-batch may mean more micro-steps, whose gradients take more.
std::optional<PlanSettings> settings_of(const PlanOptions& options, PlanReport& report) {
  const Advice advice = advise(report.subject, report.config, report.world, report.budget);
  if (!advice.words) return std::nullopt;
  const train::TrainOptions run = run_of(options);
  PlanSettings settings =
      settings_with(train::read_run_config(run), run.overrides, words_of(options, report, *advice.words));
  PlanOptions again = options;
  again.overrides = settings.overrides;
  again.batch = 0;
  for (size_t i = 0; i + 1 < settings.flags.size(); i += 2) {
    if (settings.flags[i] == "--recompute") again.recompute = settings.flags[i + 1];
  }
  try {
    const PlanReport planned = plan_of(again).report;
    if (chosen_fits(planned.subject, planned.config, report.world, report.budget)) return settings;
    report.notes.push_back("No settings are given: with all of them in a config, it would not fit.");
  } catch (const Error& error) {
    report.notes.push_back(fmt::format("No settings are given: {}", error.what()));
  }
  return std::nullopt;
}

// The memory is the cluster's, unless flags say otherwise.
TimeQuestion time_question_of(const PlanOptions& options, const Planned& planned,
                              const std::optional<forecast::Cluster>& cluster) {
  TimeQuestion question{
      planned.report, planned.model.get(), planned.step, cluster.value_or(forecast::Cluster{}), {}, "", options.json};
  if (!cluster || !options.time.search) return question;
  const HostMemory memory = memory_of(options);
  if (memory.gpu) question.cluster.gpu.memory = *memory.gpu;
  if (memory.host) question.cluster.host.memory = *memory.host;
  const train::TrainOptions run = run_of(options);
  question.written = settings_with(train::read_run_config(run), run.overrides, "").config;
  if (options.sequence > 0) question.flags = fmt::format("--sequence {}", options.sequence);
  return question;
}

void check_flags(const PlanOptions& options) {
  if (options.time.search && options.batch > 0) {
    throw Error("--batch", "is what --search looks for. Remove it, or give --max-batch.");
  }
  if (options.time.search && options.recompute != "none") {
    throw Error("--recompute", "is what --search looks for. Remove it.");
  }
  if (options.model.empty() == options.params.empty()) {
    throw Error("--model", "give either a model or --params, the number of parameters.");
  }
  if (!options.params.empty() && (options.batch > 0 || options.sequence > 0 || options.recompute != "none")) {
    throw Error("--params",
                "with a number alone no activations are counted, and --batch, --sequence and --recompute "
                "change nothing else. Leave them out, or give --model.");
  }
  if (!options.lora.empty() && options.model.empty()) {
    throw Error("--lora", "names matrices of a model, and --params knows none. Give --model in place of it.");
  }
  if (!options.lora.empty() && options.time.asked()) {
    throw Error("--lora", "--time and --search count steps that train every weight. Leave one of them out.");
  }
  if (options.world == 0) throw Error("--world", "give the ranks in all, or --cluster with --hosts.");
  if (options.time.asked() && options.model.empty()) {
    throw Error("--model", "--time and --search need the model's shape: give --model in place of --params.");
  }
  if (options.ranks_per_host > options.world) {
    throw Error("--ranks-per-host",
                fmt::format("{} ranks on a host are more than --world, {} in all. Give {} or fewer.",
                            options.ranks_per_host, options.world, options.world));
  }
}

// A cluster says how many ranks there are and what memory they have, where the user has not.
void fill_in(PlanOptions& options, const std::optional<forecast::Cluster>& cluster) {
  if (!cluster) return;
  options.world = ranks_of(options.time, *cluster, options.world);
  if (options.gpu_memory.empty()) options.gpu_memory = fmt::format("{}B", cluster->gpu.memory);
  if (options.host_memory.empty()) options.host_memory = fmt::format("{}B", cluster->host.memory);
  if (options.ranks_per_host == 0) options.ranks_per_host = std::min(options.world, cluster->gpus_per_host);
}

int run_plan(PlanOptions options) {
  std::optional<forecast::Cluster> cluster;
  Planned planned = as_usage([&] {
    cluster = cluster_of(options.time, options.world);
    fill_in(options, cluster);
    check_flags(options);
    return plan_of(options);
  });
  PlanReport& report = planned.report;
  report.world = options.world;
  report.budget = budget_of(memory_of(options));
  report.notes = notes_of(options);
  const TimeQuestion time = as_usage([&] { return time_question_of(options, planned, cluster); });
  if (options.time.search) return as_usage([&] { return print_search(options.time, time); }) ? 0 : kDoesNotFit;
  report.settings = as_usage([&] { return settings_of(options, report); });
  std::string text = options.json ? plan_json(report) : plan_text(report);
  if (options.time.time) text = as_usage([&] { return with_time(text, time); });
  fmt::print("{}", text);
  return chosen_fits(report.subject, report.config, report.world, report.budget) ? 0 : kDoesNotFit;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("plan", "Count the bytes of a rank at every stage, before anything is allocated");
  const auto options = std::make_shared<PlanOptions>();  // lives as long as the callback
  verb->add_option("--model", options->model, "A folder with a Hugging Face config.json, or a built-in name");
  verb->add_option("--params", options->params, "Only the number of parameters: 7e9, 7B");
  add_lora(*verb, options->lora);
  verb->add_option("--config", options->config,
                   "DeepSpeed's JSON; without it stage 3, in bf16 with --gpu-memory or --params, else in fp32");
  verb->add_option("--set", options->overrides, "A setting over the config, as zero_optimization.stage=2")
      ->allow_extra_args(false);
  verb->add_option("--world", options->world, "Ranks in all; with --cluster by default all of its GPUs")
      ->check(CLI::Range(1, 1 << 16));
  verb->add_option("--ranks-per-host", options->ranks_per_host, "Ranks that share a host's memory; by default all")
      ->check(CLI::Range(1, 1 << 16));
  verb->add_option("--gpu-memory", options->gpu_memory, "Memory of each rank's GPU, as 80GiB; a plan fills 97 % of it");
  verb->add_option("--host-memory", options->host_memory, "Memory of a host, as 512GiB; a plan fills 90 % of it");
  verb->add_option("--batch", options->batch, "Samples a micro-step, for activations; by default the config's")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  verb->add_option("--sequence", options->sequence,
                   fmt::format("Tokens a sample; by default what the model can take, at most {}",
                               train::kLongestDefaultSequence))
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  add_recompute(*verb, options->recompute);
  add_time(*verb, options->time);
  verb->add_flag("--json", options->json, "Print JSON");
  verb->footer(
      "Ends with 0 when the config's stage fits or no memory is given, with 3 when it does not fit, 2 for wrong "
      "usage.\n"
      "\nExample:\n  shoal plan --model llama-7b --world 8 --gpu-memory 80GiB\n"
      "  shoal plan --params 7e9 --world 8\n"
      "  shoal plan --model llama-8b --world 1 --gpu-memory 24GiB --lora r=16,alpha=32,targets=all-linear\n"
      "  shoal plan --model llama-7b --time --cluster H100 --hosts 2\n"
      "  shoal plan --model llama-2-70b --search --cluster 4090 --global-batch 64\n"
      "  shoal plan --model llama-8b --search --cluster cluster.json --set fp8.enabled=true --json");
  verb->callback([options, &exit_code] { exit_code = run_plan(*options); });
}

}  // namespace shoal::cli
