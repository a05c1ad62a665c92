// See monitor_logs.h.
#include "train/monitor_logs.h"

#include <fmt/format.h>

#include <filesystem>
#include <sstream>
#include <utility>

#include "base/text.h"
#include "shoal/error.h"
#include "train/csv_log.h"
#include "train/event_file.h"

namespace shoal::train {

namespace {

namespace fs = std::filesystem;

constexpr const char* kNoWandb =
    "wandb is a Python package with a file format of its own, and this command has no Python. Use --log tensorboard, "
    "whose files `wandb sync FOLDER` takes; or train through the Python package deepspeed.";

std::string folder_of(const char* flag, const FolderMonitor& monitor, const std::string& out, const char* own) {
  if (!monitor.output_path.empty()) return (fs::path(monitor.output_path) / monitor.job_name).string();
  if (out.empty()) throw Error(flag, fmt::format("{} has no folder to write to. Give --out DIR.", own));
  return (fs::path(out) / own).string();
}

// `write` on a log; what goes wrong is said the first time.
template <typename Log, typename Write>
void attempt(const std::unique_ptr<Log>& log, bool& said, const std::function<void(const std::string&)>& say,
             const Write& write) {
  if (log == nullptr) return;
  try {
    write(*log);
  } catch (const Error& error) {
    if (!std::exchange(said, true)) say(fmt::format("{} Training goes on; this is said once.", error.what()));
  }
}

}  // namespace

LogFolders log_folders(const TrainOptions& options, const Config& config) {
  bool tensorboard = config.monitor.tensorboard.enabled, csv = config.monitor.csv.enabled;
  if (config.monitor.wandb.enabled) throw Error("config wandb", kNoWandb);
  const char* flag = "config";
  std::istringstream words(options.log);
  for (std::string word; std::getline(words, word, ',');) {
    flag = "--log";
    if (word == "tensorboard") {
      tensorboard = true;
    } else if (word == "csv") {
      csv = true;
    } else if (word == "wandb") {
      throw Error("--log", kNoWandb);
    } else {
      const std::string near = nearest_word(word, {"tensorboard", "csv", "wandb"});
      throw Error("--log", fmt::format("\"{}\" is no log.{} Give tensorboard, csv or both, with a comma between them.",
                                       word, near.empty() ? "" : fmt::format(" Did you mean {}?", near)));
    }
  }
  return {tensorboard ? folder_of(flag, config.monitor.tensorboard, options.out, "tensorboard") : "",
          csv ? folder_of(flag, config.monitor.csv, options.out, "csv") : ""};
}

MonitorLogs::MonitorLogs(const LogFolders& folders, std::optional<int64_t> resumed_at, bool scales_loss,
                         std::function<void(const std::string&)> say)
    : scales_loss_(scales_loss), say_(std::move(say)) {
  if (!folders.tensorboard.empty()) {
    events_ = std::make_unique<EventFile>(folders.tensorboard);
    if (resumed_at) events_->restart_at(*resumed_at + 1);
  }
  if (!folders.csv.empty()) csv_ = std::make_unique<CsvLog>(folders.csv, resumed_at);
}

MonitorLogs::~MonitorLogs() = default;

void MonitorLogs::add(const std::string& name, int64_t samples, double value) {
  attempt(events_, said_events_, say_, [&](EventFile& events) { events.add(name, samples, value); });
  attempt(csv_, said_csv_, say_, [&](CsvLog& csv) { csv.add(name, samples, value); });
}

void MonitorLogs::write(int64_t samples, const StepMetrics& metrics) {
  add("Train/Samples/train_loss", samples, metrics.loss);
  add("Train/Samples/lr", samples, metrics.lr);
  if (scales_loss_) add("Train/Samples/loss_scale", samples, metrics.loss_scale);
  add("Train/Samples/grad_norm", samples, metrics.grad_norm);
  add("Train/Samples/elapsed_time_ms", samples, metrics.step_ms);
  add("Train/Samples/tokens_per_s", samples, metrics.tokens_per_s);
  if (metrics.balance_loss) add("Train/Samples/router_aux_loss", samples, *metrics.balance_loss);
  if (!metrics.busiest_experts.empty()) {
    const std::vector<double>& busiest = metrics.busiest_experts;
    add("Train/Samples/busiest_expert", samples, *std::max_element(busiest.begin(), busiest.end()));
  }
}

void MonitorLogs::write(int64_t samples, const EvalMetrics& metrics) {
  add("Validation/Samples/loss", samples, metrics.loss);
}

}  // namespace shoal::train
