// See trace.h.
#include "train/trace.h"

#include <ATen/record_function.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "base/wait_log.h"
#include "device/cuda.h"
#include "shoal/error.h"
#include "train/trace_waits.h"

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

std::string words_of_waits(const std::vector<Wait>& waits) {
  std::map<std::string, std::vector<Interval>> of;
  for (const Wait& wait : waits) {
    of[wait.what].push_back({static_cast<uint64_t>(wait.begin_ns), static_cast<uint64_t>(wait.end_ns)});
  }
  std::string words;
  for (auto& [what, intervals] : of) {
    words += fmt::format("{}{} {:.1f} ms", words.empty() ? "; waits: " : ", ", what,
                         static_cast<double>(covered(std::move(intervals))) * 1e-6);
  }
  return words;
}

void put_waits_into(const std::string& path, const std::vector<Wait>& waits) {
  const std::string whole = path + ".whole";
  std::ifstream trace(path, std::ios::binary);
  std::ofstream out(whole, std::ios::binary);
  std::error_code failed;
  try {
    copy_with_waits(trace, waits, out);
  } catch (...) {
    std::filesystem::remove(whole, failed);
    throw;
  }
  out.close();
  if (out) std::filesystem::rename(whole, path, failed);
  if (out && !failed) return;
  std::filesystem::remove(whole, failed);
  throw Error("--trace-steps",
              fmt::format("{} cannot be written with its waits. Is there space for it twice on its disk?", path));
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

std::set<int> read_rank_list(const std::string& text, int world) {
  std::set<int> ranks;
  if (text == "all") {
    for (int rank = 0; rank < world; ++rank) ranks.insert(rank);
    return ranks;
  }
  const auto refuse = [&](const std::string& why) {
    throw Error("--trace-ranks", fmt::format("\"{}\" {}. Write all, 0, or 0,2-3.", text, why));
  };
  const char* at = text.data();
  const char* end = text.data() + text.size();
  for (;;) {
    int first = -1;
    std::from_chars_result read = std::from_chars(at, end, first);
    if (read.ec != std::errc() || first < 0) refuse("names no ranks");
    int last = first;
    if (read.ptr != end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
      if (read.ec != std::errc() || last < first) refuse("names no ranks");
    }
    if (last >= world) refuse(fmt::format("names rank {}, and there are {}", last, world));
    for (int rank = first; rank <= last; ++rank) ranks.insert(rank);
    if (read.ptr == end) return ranks;
    if (*read.ptr != ',') refuse("names no ranks");
    at = read.ptr + 1;
  }
}

std::string trace_name(int rank) { return rank == 0 ? "trace.json" : fmt::format("trace-rank-{}.json", rank); }

TraceRange::TraceRange(const std::string& name) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
  if (!callbacks.has_value()) return;
  range_ = std::make_unique<at::RecordFunction>(std::move(*callbacks));
  range_->before(name);
}

TraceRange::~TraceRange() = default;

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
  const auto drop = [](const auto& end) {
    try {
      end();
    } catch (...) {  // nobody waits for it any more
    }
  };
  drop([] { WaitLog::of_process().end(); });
  drop([] { torch::autograd::profiler::disableProfiler(); });
}

void Trace::begin_step(int64_t step) {
  if (step != steps_.first || running_) return;
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  std::set<profiler::ActivityType> what = {profiler::ActivityType::CPU};
  if (cuda::device_count() > 0) what.insert(profiler::ActivityType::CUDA);
  torch::autograd::profiler::prepareProfiler(config, what);
  torch::autograd::profiler::enableProfiler(config, what);
  running_ = true;
  WaitLog::of_process().begin();
}

std::string Trace::end_with(int64_t step) {
  if (!running_) return "";
  steps_.last = step;
  return end_step(step);
}

std::string Trace::end_step(int64_t step) {
  if (!running_ || step != steps_.last) return "";
  const std::vector<Wait> waits = WaitLog::of_process().end();
  running_ = false;
  const auto result = torch::autograd::profiler::disableProfiler();
  const std::string words = words_of_gpu(result->events()) + words_of_waits(waits);
  std::error_code none;
  std::filesystem::remove(path_, none);  // one of an earlier run is no sign of this one
  result->save(path_);
  // The profiler says nothing of a file that it could not write.
  if (!std::filesystem::is_regular_file(path_, none) || std::filesystem::file_size(path_, none) == 0) {
    throw Error("--trace-steps",
                fmt::format("{} was not written. Is the folder there, with space on its disk?", path_));
  }
  if (!waits.empty()) put_waits_into(path_, waits);
  return fmt::format("trace of steps {} to {}: {}{}", steps_.first, steps_.last, path_, words);
}

}  // namespace shoal::train
