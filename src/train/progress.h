// What a run prints while it trains: a bar that is redrawn on a terminal, a line now and then elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "train/metrics_file.h"

namespace shoal::train {

// "step 10/200 | loss 3.2100 | norm 1.23 | lr 0.0003 | epoch 0.25 | 1,234 tokens/s | MFU 41.2 % | 120 ms | wait 12 % |
// 23 s left" (MFU where the device's peak is known), and ", host 5 ms, disk 31 ms" behind the wait where tiers were
// waited for; "save 12 ms" where saves held training up. Within so many characters: the least important parts are left
// out, the wait first.
struct StepWords {
  std::string left;  // see left_text
  double epoch = 0;  // that the run is in, counted from 0; 0: not said
  double mfu = 0;    // 0: not known
};
std::string step_text(const StepMetrics& metrics, int64_t steps, const StepWords& words = {},
                      size_t width = std::string::npos);
// "23 s left", "27 min left", "3.5 h left", "2.1 days left"; "" for nothing.
std::string left_text(double seconds);
// "[####......]": as many marks as the share of the steps taken.
std::string bar_text(int64_t step, int64_t steps, int width);

// Columns of the terminal that the bar is drawn on; 0 where there is none.
int columns_of_terminal();

class Progress {
 public:
  struct Options {
    std::FILE* out = stdout;
    int columns = 0;     // of the terminal that a bar is drawn on; 0: no terminal, plain lines
    bool quiet = false;  // prints nothing: ranks other than 0
    int64_t steps = 0;
    int64_t last = 0;  // step that this run ends with; 0: the last of them all
    int64_t log_every = 10;
    int64_t tokens_per_epoch = 0;  // 0: epochs are not told
    double mfu_per_token = 0;      // see train/model_flops.h
  };
  explicit Progress(const Options& options) : options_(options) {}
  ~Progress() { clear(); }

  // `last`: print it wherever it falls. The times of a line of its own are means over the steps since the line before
  // it, or since the first step, which also starts everything: results come in bursts where they are read late. What
  // saves took is the sum.
  void show(const StepMetrics& metrics, bool last);
  // A line of its own.
  void say(const std::string& line);

 private:
  // Of the steps since the last line.
  struct Sums {
    int64_t steps = 0;
    double ms = 0, tokens = 0, wait_comm_ms = 0, wait_host_ms = 0, wait_disk_ms = 0, save_ms = 0;
  };

  void add(const StepMetrics& metrics);
  StepMetrics with_means(StepMetrics metrics) const;
  // By the mean over all steps but the first, which also starts everything; evaluations and saves come on top.
  std::string left_after(int64_t step) const;
  StepWords words_of(const StepMetrics& metrics, bool last) const;
  void clear();

  Options options_;
  Sums sums_;
  int64_t shown_steps_ = 0;
  double ms_ = 0;  // of all of them but the first
  bool has_shown_ = false;
  bool bar_shown_ = false;
};

}  // namespace shoal::train
