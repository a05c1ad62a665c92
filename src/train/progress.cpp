// See progress.h.
#include "train/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <utility>
#include <vector>

#include "base/text.h"

namespace shoal::train {

namespace {

// A part of a step's line. Where a terminal is too narrow for all of them, the least important go first.
struct Part {
  std::string text;
  int importance = 0;
};

std::vector<Part> parts_of(const StepMetrics& metrics, int64_t steps, const StepWords& words) {
  std::vector<Part> parts = {{fmt::format("step {}/{}", metrics.step, steps), 9},
                             {fmt::format("loss {:.4f}", metrics.loss), 8},
                             {fmt::format("norm {:.3g}", std::fabs(metrics.grad_norm)), 4},
                             {fmt::format("lr {:.3g}", metrics.lr), 3}};
  if (metrics.loss_scale != 1) parts.push_back({fmt::format("scale {:g}", metrics.loss_scale), 1});
  if (words.epoch > 0) parts.push_back({fmt::format("epoch {:.2f}", words.epoch), 2});
  // A step without a time, of a clock that stood still, has no speed either.
  const bool timed = metrics.step_ms > 0 && std::isfinite(metrics.tokens_per_s);
  if (timed) {
    parts.push_back({format_count(static_cast<int64_t>(metrics.tokens_per_s)) + " tokens/s", 5});
    if (words.mfu > 0) parts.push_back({fmt::format("MFU {:.1f} %", 100 * words.mfu), 5});
    parts.push_back({fmt::format("{:.{}f} ms", metrics.step_ms, metrics.step_ms < 10 ? 1 : 0), 1});
  }
  std::string wait = fmt::format("wait {:.0f} %", timed ? 100 * metrics.wait_comm_ms / metrics.step_ms : 0.0);
  if (metrics.wait_host_ms > 0) wait += fmt::format(", host {:.0f} ms", metrics.wait_host_ms);
  if (metrics.wait_disk_ms > 0) wait += fmt::format(", disk {:.0f} ms", metrics.wait_disk_ms);
  parts.push_back({std::move(wait), 0});
  if (metrics.save_ms >= 0.5) parts.push_back({fmt::format("save {:.0f} ms", metrics.save_ms), 2});
  if (!metrics.busiest_experts.empty()) {
    const double worst = *std::max_element(metrics.busiest_experts.begin(), metrics.busiest_experts.end());
    parts.push_back({fmt::format("busiest expert {:.1f} x", worst), 1});
  }
  if (metrics.slow_rank) parts.push_back({fmt::format("ranks wait for rank {}", *metrics.slow_rank), 5});
  if (!words.left.empty()) parts.push_back({words.left, 7});
  if (metrics.skipped) parts.push_back({"skipped: a gradient is not finite", 6});
  return parts;
}

std::string line_of(const std::vector<Part>& parts) {
  std::vector<std::string> texts;
  for (const Part& part : parts) texts.push_back(part.text);
  return join(texts, " | ");
}

// Up to which a part gives way to the bar.
constexpr int kBarsImportance = 4;

size_t length_of(const std::vector<Part>& parts, int above) {
  std::vector<Part> kept;
  std::copy_if(parts.begin(), parts.end(), std::back_inserter(kept),
               [&](const Part& p) { return p.importance > above; });
  return line_of(kept).size();
}

// Marks in the bar. Columns are for the numbers first: where the run is, its loss, its speed, and what is left.
size_t bar_marks(size_t columns, const std::vector<Part>& parts) {
  const size_t needed = length_of(parts, kBarsImportance);
  for (const size_t marks : {20, 10, 5}) {
    if (needed + marks + std::string("[] ").size() <= columns) return marks;
  }
  return 0;
}

}  // namespace

std::string left_text(double seconds) {
  constexpr double kMinute = 60, kHour = 3600, kDay = 24 * kHour;
  if (!(seconds > 0)) return "";
  if (seconds < 1.5 * kMinute) return fmt::format("{:.0f} s left", std::ceil(seconds));
  if (seconds < 1.5 * kHour) return fmt::format("{:.0f} min left", seconds / kMinute);
  if (seconds < 2 * kDay) return fmt::format("{:.1f} h left", seconds / kHour);
  return fmt::format("{:.1f} days left", seconds / kDay);
}

// mpirun gives ranks a terminal of its own and passes on what is drawn there.
int columns_of_terminal() {
  if (::isatty(STDOUT_FILENO) != 1 || std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) return 0;
  constexpr int kUsual = 80;
  winsize window{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : kUsual;
}

std::string step_text(const StepMetrics& metrics, int64_t steps, const StepWords& words, size_t width) {
  std::vector<Part> parts = parts_of(metrics, steps, words);
  while (parts.size() > 1 && line_of(parts).size() > width) {
    parts.erase(std::min_element(parts.begin(), parts.end(),
                                 [](const Part& a, const Part& b) { return a.importance < b.importance; }));
  }
  return line_of(parts).substr(0, width);
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
    // A line that wraps could not be drawn over.
    const size_t columns = static_cast<size_t>(options_.columns - 1);
    const StepWords words = words_of(metrics, false);
    const size_t marks = bar_marks(columns, parts_of(metrics, options_.steps, words));
    const std::string bar = marks > 0 ? bar_text(metrics.step, options_.steps, static_cast<int>(marks)) + " " : "";
    fmt::print(options_.out, "\r\033[K{}{}", bar, step_text(metrics, options_.steps, words, columns - bar.size()));
    std::fflush(options_.out);
    bar_shown_ = true;
  } else if (last || metrics.step == 1 || metrics.skipped ||
             (options_.log_every > 0 && metrics.step % options_.log_every == 0)) {
    const StepMetrics means = with_means(metrics);
    say(step_text(means, options_.steps, words_of(means, last)));
    sums_ = {};
  }
  if (!std::exchange(has_shown_, true)) sums_ = {};
}

StepWords Progress::words_of(const StepMetrics& metrics, bool last) const {
  StepWords words = {last ? "" : left_after(metrics.step), 0, metrics.tokens_per_s * options_.mfu_per_token};
  if (options_.tokens_per_epoch > 0) {
    words.epoch = static_cast<double>(metrics.tokens) / static_cast<double>(options_.tokens_per_epoch);
  }
  return words;
}

void Progress::add(const StepMetrics& metrics) {
  ++sums_.steps;
  sums_.ms += metrics.step_ms;
  ++shown_steps_;
  if (shown_steps_ <= 2) ms_ = 0;  // the first counts until there is another
  ms_ += metrics.step_ms;
  if (metrics.step_ms > 0) sums_.tokens += metrics.tokens_per_s * metrics.step_ms * 1e-3;
  sums_.wait_comm_ms += metrics.wait_comm_ms;
  sums_.wait_host_ms += metrics.wait_host_ms;
  sums_.wait_disk_ms += metrics.wait_disk_ms;
  sums_.save_ms += metrics.save_ms;
}

StepMetrics Progress::with_means(StepMetrics metrics) const {
  const auto steps = static_cast<double>(sums_.steps);
  metrics.step_ms = sums_.ms / steps;
  metrics.tokens_per_s = sums_.ms > 0 ? sums_.tokens / sums_.ms * 1e3 : 0;
  metrics.wait_comm_ms = sums_.wait_comm_ms / steps;
  metrics.wait_host_ms = sums_.wait_host_ms / steps;
  metrics.wait_disk_ms = sums_.wait_disk_ms / steps;
  metrics.save_ms = sums_.save_ms;
  return metrics;
}

std::string Progress::left_after(int64_t step) const {
  const int64_t last = options_.last > 0 ? options_.last : options_.steps;
  if (step >= last) return "";
  const auto counted = static_cast<double>(std::max<int64_t>(1, shown_steps_ - 1));
  return left_text(ms_ * 1e-3 / counted * static_cast<double>(last - step));
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
