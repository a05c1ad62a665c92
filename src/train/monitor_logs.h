// The numbers of a `shoal train` run for others' eyes, beside metrics.jsonl: TensorBoard's event files and CSV files,
// by DeepSpeed's names. The trainer writes here on rank 0; a log that cannot be written says so once and ends nothing.
//
//   Train/Samples/train_loss, lr, loss_scale (fp16), grad_norm, elapsed_time_ms, tokens_per_s; Validation/Samples/loss
//
// Steps are samples trained on, this step's with them, as DeepSpeed counts them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "shoal/config.h"
#include "train/metrics_file.h"
#include "train/options.h"

namespace shoal::train {

class CsvLog;
class EventFile;

// Folders; "": not written.
struct LogFolders {
  std::string tensorboard;
  std::string csv;
};

// By --log, or the sections tensorboard and csv_monitor of the config. Throws shoal::Error for what cannot be: a name
// that is no log, wandb, no folder to write to.
LogFolders log_folders(const TrainOptions& options, const Config& config);

class MonitorLogs {
 public:
  // Makes the files. `resumed_at`: the samples that a run goes on from; `say` gets what could not be written. Throws
  // shoal::Error when a folder cannot be written.
  MonitorLogs(const LogFolders& folders, std::optional<int64_t> resumed_at, bool scales_loss,
              std::function<void(const std::string&)> say);
  ~MonitorLogs();

  void write(int64_t samples, const StepMetrics& metrics);
  void write(int64_t samples, const EvalMetrics& metrics);

 private:
  void add(const std::string& name, int64_t samples, double value);

  bool scales_loss_;
  std::function<void(const std::string&)> say_;
  std::unique_ptr<EventFile> events_;
  std::unique_ptr<CsvLog> csv_;
  bool said_events_ = false, said_csv_ = false;
};

}  // namespace shoal::train
