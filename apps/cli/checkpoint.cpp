// `shoal checkpoint`: look at checkpoints, verify them, and take weights to and from Hugging Face's safetensors.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "checkpoint/export_safetensors.h"
#include "checkpoint/import_weights.h"
#include "checkpoint/listing.h"
#include "checkpoint/resolve.h"
#include "checkpoint/verify.h"
#include "cli/verbs.h"
#include "models/lora_export.h"
#include "models/open_model.h"

namespace shoal::cli {
namespace {

namespace fs = std::filesystem;
using json::Array;
using json::Object;

struct CheckpointFlags {
  std::string path, out, dtype, base;
  bool json = false, adapter = false, merged = false;
};

int run_ls(const CheckpointFlags& flags) {
  const std::vector<checkpoint::Listed> rows = checkpoint::list_checkpoints(flags.path);
  if (flags.json) {
    Array all;
    for (const checkpoint::Listed& row : rows) {
      Object members = {{"path", row.path, {}}, {"step", row.step, {}}, {"complete", row.problem.empty(), {}}};
      if (row.problem.empty()) {
        members.insert(members.end(), {{"latest", row.is_latest, {}},
                                       {"world", row.world, {}},
                                       {"parameters", row.params, {}},
                                       {"numel", row.numel, {}},
                                       {"nbytes", row.nbytes, {}},
                                       {"weights_only", row.weights_only, {}},
                                       {"trained_only", row.trained_only, {}}});
      } else {
        members.push_back({"problem", row.problem, {}});
      }
      all.emplace_back(std::move(members));
    }
    fmt::print("{}\n", json::write(std::move(all), 2));
    return 0;
  }
  for (const checkpoint::Listed& row : rows) {
    const std::string name = fs::path(row.path).lexically_normal().filename().string();
    if (!row.problem.empty()) {
      fmt::print("{}  not complete: {}\n", name, row.problem);
      continue;
    }
    fmt::print("{}  {:>10}  {} elements, {} parameters, saved by {} rank{}{}{}\n", name,
               format_nbytes(static_cast<uint64_t>(row.nbytes)), format_count(row.numel), row.params, row.world,
               row.world == 1 ? "" : "s",
               row.weights_only   ? ", weights only"
               : row.trained_only ? ", without frozen weights"
                                  : "",
               row.is_latest ? "  <- latest" : "");
  }
  return 0;
}

int run_verify(const CheckpointFlags& flags) {
  int64_t broken = 0;
  Array all;
  for (const checkpoint::Listed& row : checkpoint::list_checkpoints(flags.path)) {
    const std::vector<std::string> problems = checkpoint::verify(row.path);
    if (!problems.empty()) ++broken;
    if (flags.json) {
      all.emplace_back(Object{{"path", row.path, {}}, {"problems", Array(problems.begin(), problems.end()), {}}});
      continue;
    }
    fmt::print("{}: {}\n", row.path, problems.empty() ? "every byte is as it was saved" : "damaged");
    for (const std::string& problem : problems) fmt::print("  {}\n", problem);
  }
  if (flags.json) fmt::print("{}\n", json::write(std::move(all), 2));
  return broken == 0 ? 0 : 1;
}

int run_export(const CheckpointFlags& flags) {
  const std::string dtype_name = !flags.dtype.empty() ? flags.dtype : flags.adapter ? "fp32" : "bf16";
  const DType dtype = dtype_name == "fp32" ? DType::f32 : DType::bf16;
  const std::string from = checkpoint::resolve_checkpoint(flags.path, "checkpoint export");
  if (!flags.base.empty() && !flags.adapter && !flags.merged) {
    throw UsageError("--model", "is the base of adapters. Give --adapter or --merged beside it, or leave it out.");
  }
  const models::LoraExport lora = {.checkpoint = from, .folder = flags.out, .base = flags.base, .dtype = dtype};
  const auto pieces_of = [&](const std::string& model_config) {
    return models::open_model_of_config(model_config, from)->stored_pieces();
  };
  const checkpoint::Exported exported =
      flags.adapter  ? models::export_adapter(lora)
      : flags.merged ? models::export_merged(lora)
                     : checkpoint::export_safetensors(from, flags.out, {.dtype = dtype}, pieces_of);
  fmt::print("{} -> {}: {} tensors, {} elements in {}\n", from, flags.out, exported.tensors,
             format_count(exported.numel), dtype_name);
  if (!exported.has_config) {
    fmt::print(stderr, "The checkpoint does not know its model: there is no config.json beside the weights.\n");
  }
  return 0;
}

bool has_weights(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") return true;
  }
  return false;
}

int run_import(const CheckpointFlags& flags) {
  if (!has_weights(flags.path)) {
    throw UsageError("checkpoint import", fmt::format("{} holds no .safetensors. Name a folder with a Hugging Face "
                                                      "config.json and its weights.",
                                                      flags.path));
  }
  const std::unique_ptr<models::LanguageModel> model = models::open_model(flags.path);
  const std::string path = checkpoint::import_weights(model->units(), {flags.out, model->config_json()});
  fmt::print("{} -> {}: {} elements\n", flags.path, path, format_count(model->info().numel));
  return 0;
}

}  // namespace

void add_checkpoint(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("checkpoint", "List, verify, export and import checkpoints.");
  verb->require_subcommand(1);
  verb->footer("Example:\n  shoal checkpoint verify run/checkpoints");
  const auto flags = std::make_shared<CheckpointFlags>();

  CLI::App* ls = verb->add_subcommand("ls", "List the checkpoints of a folder.");
  ls->add_option("folder", flags->path, "one checkpoint, a folder of them, or of a run")->required();
  ls->add_flag("--json", flags->json, "for programs");
  ls->footer("Example:\n  shoal checkpoint ls run/checkpoints --json");
  ls->callback([flags, &exit_code] { exit_code = run_ls(*flags); });

  CLI::App* verify =
      verb->add_subcommand("verify", "Read every byte and say what is damaged. Exit code 1 if anything.");
  verify->add_option("path", flags->path, "one checkpoint, a folder of them, or of a run")->required();
  verify->add_flag("--json", flags->json, "for programs");
  verify->footer("Example:\n  shoal checkpoint verify run/checkpoints/step-00000100");
  verify->callback([flags, &exit_code] { exit_code = run_verify(*flags); });

  CLI::App* exporting = verb->add_subcommand("export", "Write the weights as safetensors that transformers loads.");
  exporting->add_option("checkpoint", flags->path, "one checkpoint, or a folder of them or of a run: its latest")
      ->required();
  exporting->add_option("folder", flags->out, "where to; must hold no weights")->required();
  exporting->add_option("--dtype", flags->dtype, "of the weights; left out: bf16, of --adapter fp32")
      ->check(CLI::IsMember({"bf16", "fp32"}));
  CLI::Option* adapter =
      exporting->add_flag("--adapter", flags->adapter, "of a run with --lora: the adapters, in the format of PEFT");
  exporting
      ->add_flag("--merged", flags->merged, "of a run with --lora: the whole model, adapters added to its matrices")
      ->excludes(adapter);
  exporting->add_option("--model", flags->base,
                        "with --adapter or --merged: where the base is; left out: where it was when the run began");
  exporting->footer(
      "Example:\n  shoal checkpoint export run/checkpoints exported --dtype fp32\n"
      "  shoal checkpoint export tuned adapter --adapter\n"
      "  shoal checkpoint export tuned whole --merged");
  exporting->callback([flags, &exit_code] { exit_code = run_export(*flags); });

  CLI::App* importing =
      verb->add_subcommand("import", "Make a checkpoint to start training from, of a model's weights.");
  importing->add_option("model", flags->path, "a folder with a Hugging Face config.json and safetensors")->required();
  importing->add_option("folder", flags->out, "of checkpoints, without any; the new one is step-00000000 in it")
      ->required();
  importing->footer("Example:\n  shoal checkpoint import Llama-3.2-1B run/checkpoints");
  importing->callback([flags, &exit_code] { exit_code = run_import(*flags); });
}

}  // namespace shoal::cli
