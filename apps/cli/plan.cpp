// `shoal plan`: bytes a rank at every stage, does it fit, what would. Opens the model without memory; the counting is
// in plan/stage_plans.h, the text in plan/plan_text.h.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/quantity.h"
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
  std::string model, params, config;
  std::vector<std::string> overrides;
  int world = 1;
  int ranks_per_host = 0;
  std::string gpu_memory, host_memory;
  int64_t batch = 0, sequence = 0;
  std::string recompute = "none";
  bool json = false;
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

Config read_config(const PlanOptions& options, int64_t hidden_size) {
  train::TrainOptions run;
  run.config_path = options.config;
  run.overrides = options.overrides;
  if (assumes_bf16(options)) run.overrides.insert(run.overrides.begin(), kBf16);
  run.steps = 1;  // a plan has no steps; schedules that want their number get one
  return train::make_run_config(run, options.world, hidden_size).config;
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

PlanReport plan_model(const PlanOptions& options) {
  const models::Recompute recompute = recompute_named(options.recompute);
  const auto model = models::open_model(options.model, {.recompute = recompute});
  const models::ModelInfo& info = model->info();
  PlanReport report;
  report.config = read_config(options, info.hidden);
  models::MicroStep step;
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
  return report;
}

PlanReport plan_count(const PlanOptions& options) {
  PlanReport report;
  const int64_t numel = parse_count(options.params, "--params");
  report.config = read_config(options, 0);
  report.subject = subject_of_count(numel, report.config.precision);
  return report;
}

void check_flags(const PlanOptions& options) {
  if (options.model.empty() == options.params.empty()) {
    throw Error("--model", "give either a model or --params, the number of parameters.");
  }
  if (!options.params.empty() && (options.batch > 0 || options.sequence > 0 || options.recompute != "none")) {
    throw Error("--params",
                "with a number alone no activations are counted, and --batch, --sequence and --recompute "
                "change nothing else. Leave them out, or give --model.");
  }
  if (options.ranks_per_host > options.world) {
    throw Error("--ranks-per-host",
                fmt::format("{} ranks on a host are more than --world, {} in all. Give {} or fewer.",
                            options.ranks_per_host, options.world, options.world));
  }
}

int run_plan(const PlanOptions& options) {
  PlanReport report = as_usage([&] {
    check_flags(options);
    return options.model.empty() ? plan_count(options) : plan_model(options);
  });
  report.world = options.world;
  report.budget = budget_of(memory_of(options));
  report.notes = notes_of(options);
  if (assumes_bf16(options)) report.subject.assumed = fmt::format("--set {}", kBf16);
  fmt::print("{}", options.json ? plan_json(report) : plan_text(report));
  return chosen_fits(report.subject, report.config, report.world, report.budget) ? 0 : kDoesNotFit;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("plan", "Count the bytes of a rank at every stage, before anything is allocated");
  const auto options = std::make_shared<PlanOptions>();  // lives as long as the callback
  verb->add_option("--model", options->model, "A folder with a Hugging Face config.json, or a built-in name");
  verb->add_option("--params", options->params, "Only the number of parameters: 7e9, 7B");
  verb->add_option("--config", options->config,
                   "DeepSpeed's JSON; without it stage 3, in bf16 with --gpu-memory or --params, else in fp32");
  verb->add_option("--set", options->overrides, "A setting over the config, as zero_optimization.stage=2")
      ->allow_extra_args(false);
  verb->add_option("--world", options->world, "Ranks in all")->required()->check(CLI::Range(1, 1 << 16));
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
  verb->add_flag("--json", options->json, "Print JSON");
  verb->footer(
      "Ends with 0 when the config's stage fits or no memory is given, with 3 when it does not fit, 2 for wrong "
      "usage.\n"
      "\nExample:\n  shoal plan --model llama-7b --world 8 --gpu-memory 80GiB\n"
      "  shoal plan --params 7e9 --world 8");
  verb->callback([options, &exit_code] { exit_code = run_plan(*options); });
}

}  // namespace shoal::cli
