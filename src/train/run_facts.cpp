// See run_facts.h.
#include "train/run_facts.h"

#include <fstream>

#include "base/json.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << "\n";
  file.close();
  if (!file) throw Error("--out " + path.string(), "cannot be written. Give a folder with space that may be written.");
}

}  // namespace

void write_run_facts(const std::filesystem::path& folder, const TrainOptions& options, const CutOptions& cut,
                     const Config& config, const RunRanks& ranks, const ModelFlops& flops, int64_t train_samples) {
  write_text(folder / "config.json", config.to_json());
  json::Value about = json::Object{};
  about.set("model", options.model);
  about.set("data", options.data);
  about.set("sequence", cut.sequence);
  about.set("validation", cut.validation);
  about.set("packing", name_of(cut.packing));
  about.set("seed", static_cast<int64_t>(options.seed));
  about.set("steps", options.steps);
  if (!options.lora.empty()) about.set("lora", options.lora);
  if (options.no_decay) about.set("no_decay", true);
  if (options.layer_decay < 1) about.set("layer_decay", options.layer_decay);
  about.set("ranks", ranks.count);
  about.set("threads", ranks.threads);
  about.set("transport", ranks.transport);
  about.set("train_samples", train_samples);
  about.set("device", flops.device);
  about.set("flops_per_token", flops.per_token);
  about.set("peak_flops", flops.peak > 0 ? json::Value(flops.peak) : json::Value());
  write_text(folder / "run.json", json::write(about, 2));
}

}  // namespace shoal::train
