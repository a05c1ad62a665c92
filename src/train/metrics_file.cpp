// See metrics_file.h.
#include "train/metrics_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

json::Value finite(double number) { return std::isfinite(number) ? json::Value(number) : json::Value(); }

// The step of a whole line, or -1.
int64_t step_of(const std::string& line) {
  try {
    const json::Value value = json::parse(line, "line");
    const json::Value* step = value.is_object() ? value.find("step") : nullptr;
    return step != nullptr && step->is_integer() ? step->as_integer() : -1;
  } catch (const Error&) {
    return -1;
  }
}

// The lines to keep are a beginning of the file.
uintmax_t nbytes_to_keep(const std::string& path, int64_t after_step) {
  std::ifstream file(path, std::ios::binary);
  uintmax_t kept = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const int64_t step = step_of(line);
    if (step < 0 || step > after_step) break;
    kept += line.size() + 1;
  }
  return kept;
}

[[noreturn]] void throw_unwritable(const std::string& path) {
  throw Error("metrics " + path, fmt::format("cannot be written: {}.", std::strerror(errno)));
}

}  // namespace

std::string to_line(const StepMetrics& metrics) {
  json::Value line = json::Object{};
  line.set("step", metrics.step);
  line.set("loss", finite(metrics.loss));
  line.set("grad_norm", finite(metrics.grad_norm));
  line.set("lr", finite(metrics.lr));
  line.set("loss_scale", finite(metrics.loss_scale));
  line.set("skipped", metrics.skipped);
  line.set("tokens", metrics.tokens);
  line.set("tokens_per_s", finite(metrics.tokens_per_s));
  line.set("step_ms", finite(metrics.step_ms));
  line.set("wait_comm_ms", finite(metrics.wait_comm_ms));
  return json::write(line);
}

std::string to_line(const EvalMetrics& metrics) {
  json::Value line = json::Object{};
  line.set("step", metrics.step);
  line.set("loss", finite(metrics.loss));
  line.set("tokens", metrics.tokens);
  line.set("eval_ms", finite(metrics.eval_ms));
  return json::write(line);
}

MetricsFile::MetricsFile(const std::string& path, int64_t after_step) : path_(path) {
  if (std::filesystem::is_regular_file(path)) std::filesystem::resize_file(path, nbytes_to_keep(path, after_step));
  file_ = std::fopen(path.c_str(), "ab");
  if (file_ == nullptr) throw_unwritable(path);
}

MetricsFile::~MetricsFile() { std::fclose(file_); }

void MetricsFile::append(const std::string& line) {
  const std::string whole = line + "\n";
  if (std::fwrite(whole.data(), 1, whole.size(), file_) != whole.size() || std::fflush(file_) != 0) {
    throw_unwritable(path_);
  }
}

}  // namespace shoal::train
