// See progress.h.
#include "train/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace shoal::train {

namespace {

constexpr int kBarWidth = 20;

}  // namespace

std::string step_text(const StepMetrics& metrics, int64_t steps) {
  std::string text = fmt::format("step {}/{} | loss {:.4f} | norm {:.3g} | lr {:.3g}", metrics.step, steps,
                                 metrics.loss, metrics.grad_norm, metrics.lr);
  if (metrics.loss_scale != 1) text += fmt::format(" | scale {:g}", metrics.loss_scale);
  text += fmt::format(" | {} tokens/s | {:.0f} ms | wait {:.0f} %",
                      format_count(static_cast<int64_t>(metrics.tokens_per_s)), metrics.step_ms,
                      metrics.step_ms > 0 ? 100 * metrics.wait_comm_ms / metrics.step_ms : 0.0);
  if (metrics.wait_host_ms > 0) text += fmt::format(", host {:.0f} ms", metrics.wait_host_ms);
  if (metrics.wait_disk_ms > 0) text += fmt::format(", disk {:.0f} ms", metrics.wait_disk_ms);
  if (metrics.skipped) text += " | skipped: a gradient is not finite";
  return text;
}

std::string bar_text(int64_t step, int64_t steps, int width) {
  const int64_t marks = steps > 0 ? step * width / steps : 0;
  std::string bar(static_cast<size_t>(width), '.');
  for (size_t i = 0; i < static_cast<size_t>(marks); ++i) bar[i] = '#';
  return "[" + bar + "]";
}

void Progress::show(const StepMetrics& metrics, bool last) {
  if (options_.quiet) return;
  add(metrics);
  if (options_.columns > 0 && !last) {
    std::string line =
        fmt::format("{} {}", bar_text(metrics.step, options_.steps, kBarWidth), step_text(metrics, options_.steps));
    // A line that wraps could not be drawn over.
    line.resize(std::min(line.size(), static_cast<size_t>(options_.columns - 1)));
    fmt::print(options_.out, "\r\033[K{}", line);
    std::fflush(options_.out);
    bar_shown_ = true;
  } else if (last || metrics.step == 1 || metrics.skipped ||
             (options_.log_every > 0 && metrics.step % options_.log_every == 0)) {
    say(step_text(with_means(metrics), options_.steps));
    sums_ = {};
  }
  if (!std::exchange(has_shown_, true)) sums_ = {};
}

void Progress::add(const StepMetrics& metrics) {
  ++sums_.steps;
  sums_.ms += metrics.step_ms;
  if (metrics.step_ms > 0) sums_.tokens += metrics.tokens_per_s * metrics.step_ms * 1e-3;
  sums_.wait_comm_ms += metrics.wait_comm_ms;
  sums_.wait_host_ms += metrics.wait_host_ms;
  sums_.wait_disk_ms += metrics.wait_disk_ms;
}

StepMetrics Progress::with_means(StepMetrics metrics) const {
  const auto steps = static_cast<double>(sums_.steps);
  metrics.step_ms = sums_.ms / steps;
  metrics.tokens_per_s = sums_.ms > 0 ? sums_.tokens / sums_.ms * 1e3 : 0;
  metrics.wait_comm_ms = sums_.wait_comm_ms / steps;
  metrics.wait_host_ms = sums_.wait_host_ms / steps;
  metrics.wait_disk_ms = sums_.wait_disk_ms / steps;
  return metrics;
}

void Progress::say(const std::string& line) {
  if (options_.quiet) return;
  clear();
  fmt::print(options_.out, "{}\n", line);
  std::fflush(options_.out);
}

void Progress::clear() {
  if (!bar_shown_) return;
  fmt::print(options_.out, "\r\033[K");
  std::fflush(options_.out);
  bar_shown_ = false;
}

}  // namespace shoal::train
