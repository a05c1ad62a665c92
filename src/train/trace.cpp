// See trace.h.
#include "train/trace.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "device/cuda.h"
#include "shoal/error.h"

namespace shoal::train {

namespace profiler = torch::profiler::impl;

namespace {

bool is_kernel(const torch::autograd::profiler::KinetoEvent& event) {
  if (event.deviceType() != c10::DeviceType::CUDA || event.durationNs() == 0) return false;
  const std::string name = event.name();
  return !name.starts_with("Memcpy") && !name.starts_with("Memset");
}

std::string words_of_gpu(const std::vector<torch::autograd::profiler::KinetoEvent>& events) {
  std::vector<Interval> kernels;
  uint64_t begin = UINT64_MAX, end = 0;
  for (const auto& event : events) {
    if (!is_kernel(event)) continue;
    kernels.push_back({event.startNs(), event.endNs()});
    begin = std::min(begin, event.startNs());
    end = std::max(end, event.endNs());
  }
  if (kernels.empty()) return "";
  const double whole = static_cast<double>(end - begin);
  const size_t count = kernels.size();
  const double share = static_cast<double>(covered(std::move(kernels))) / whole;
  return fmt::format("; of {:.3f} s from the first kernel to the last, {} kernels ran {:.1f} % and none {:.1f} %",
                     whole * 1e-9, count, share * 100, (1 - share) * 100);
}

}  // namespace

StepSpan read_step_span(const std::string& text) {
  StepSpan span;
  const char* end = text.data() + text.size();
  std::from_chars_result read = std::from_chars(text.data(), end, span.first);
  span.last = span.first;
  if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') {
    read = std::from_chars(read.ptr + 1, end, span.last);
  }
  if (read.ec == std::errc() && read.ptr == end && span.first > 0 && span.last >= span.first) return span;
  throw Error("--trace-steps", fmt::format("\"{}\" names no steps. Write 3, or 3-5 for three steps.", text));
}

uint64_t covered(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  uint64_t sum = 0, until = 0;
  for (const Interval& interval : intervals) {
    const uint64_t from = std::max(interval.begin, until);
    if (interval.end > from) sum += interval.end - from;
    until = std::max(until, interval.end);
  }
  return sum;
}

Trace::~Trace() {
  if (!running_) return;
  try {
    torch::autograd::profiler::disableProfiler();
  } catch (...) {  // nobody waits for it any more
  }
}

void Trace::begin_step(int64_t step) {
  if (step != steps_.first || running_) return;
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  std::set<profiler::ActivityType> what = {profiler::ActivityType::CPU};
  if (cuda::device_count() > 0) what.insert(profiler::ActivityType::CUDA);
  torch::autograd::profiler::prepareProfiler(config, what);
  torch::autograd::profiler::enableProfiler(config, what);
  running_ = true;
}

std::string Trace::end_step(int64_t step) {
  if (!running_ || step != steps_.last) return "";
  running_ = false;
  const auto result = torch::autograd::profiler::disableProfiler();
  const std::string words = words_of_gpu(result->events());
  result->save(path_);
  if (!std::filesystem::exists(path_)) {
    throw Error("--trace-steps",
                fmt::format("{} was not written. Is the folder there, with space on its disk?", path_));
  }
  return fmt::format("trace of steps {} to {}: {}{}", steps_.first, steps_.last, path_, words);
}

}  // namespace shoal::train
