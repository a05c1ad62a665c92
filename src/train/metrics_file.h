// The run's numbers as JSON lines: metrics.jsonl, one line a step, eval.jsonl, one line an evaluation, and
// digests.jsonl (train/state_digests.h). Floats are written with the digits that read back to the same bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shoal::train {

struct StepMetrics {
  int64_t step = 0;  // counted from 1
  double loss = 0;   // mean over the global batch
  double grad_norm = 0;
  double lr = 0;
  double loss_scale = 1;
  bool skipped = false;     // this step, since a gradient was not finite
  int64_t tokens = 0;       // trained on so far
  std::string digest = {};  // of weights and moments after the step; "": not made
  double tokens_per_s = 0;  // in this step
  double step_ms = 0;
  double wait_comm_ms = 0;  // waiting for other ranks: its threads in this step, and its GPU in an earlier one, added
  double wait_host_ms = 0;  // of an earlier step, its GPU waiting for what lives in host memory or comes through it
  double wait_disk_ms = 0;  // of step_ms, on this rank, waiting for states on disk
  // Of wait_comm_ms, by what was waited for: weights of other ranks; gradients and their norm; the losses, shared when
  // a step is read.
  double wait_weights_ms = 0, wait_gradients_ms = 0, wait_losses_ms = 0;
  double carried_ms = 0;  // that collectives were under way, waited for or not; 0 on a GPU, where it is not measured
  double data_ms = 0;     // of step_ms, reading tokens and giving them to the device
  double save_ms = 0;     // beside step_ms: how long saves held training up since the step before was told
  // Of mixtures of experts (train/expert_load.h).
  std::optional<double> balance_loss = {};  // before its coefficient, the mean over micro-batches; `loss` has it
  std::vector<double> busiest_experts = {};
  int64_t idle_experts = 0;
  std::optional<int> slow_rank = {};  // that the others wait for: see train/slow_rank.h
  // Between the results of two steps, on this rank: states that lie in host memory or on disk.
  uint64_t host_to_gpu_nbytes = 0, gpu_to_host_nbytes = 0, disk_read_nbytes = 0, disk_written_nbytes = 0;
  // Likewise, to other ranks: all, and those on other hosts.
  uint64_t sent_nbytes = 0, sent_between_hosts_nbytes = 0;
};

struct EvalMetrics {
  int64_t step = 0;
  double loss = 0;
  int64_t tokens = 0;  // evaluated on
  double eval_ms = 0;
};

// One line without its end. What is not finite becomes null, since JSON has no word for it.
std::string to_line(const StepMetrics& metrics);
std::string to_line(const EvalMetrics& metrics);

// The step of the last whole line with one in a file of lines, or 0: how far a run came.
int64_t last_step_in(const std::string& path);

class MetricsFile {
 public:
  // Keeps the lines up to and with `after_step` that are there already and drops the rest: steps that will be taken
  // again, and a line that was cut off when the writer died.
  MetricsFile(const std::string& path, int64_t after_step);
  // Keeps every whole line, as a log does that is only appended to.
  static constexpr int64_t kEveryStep = INT64_MAX;
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // The whole line or nothing. Throws shoal::Error when it cannot be written.
  void append(const std::string& line);

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace shoal::train
