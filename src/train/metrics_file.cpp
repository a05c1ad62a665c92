// See metrics_file.h.
#include "train/metrics_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

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
    // A line that cannot be read, left by a full disk, does not take the later ones with it.
    if (step_of(line) > after_step) break;
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
  line.set("wait_host_ms", finite(metrics.wait_host_ms));
  line.set("wait_disk_ms", finite(metrics.wait_disk_ms));
  line.set("host_to_gpu_bytes", static_cast<int64_t>(metrics.host_to_gpu_nbytes));
  line.set("gpu_to_host_bytes", static_cast<int64_t>(metrics.gpu_to_host_nbytes));
  line.set("disk_read_bytes", static_cast<int64_t>(metrics.disk_read_nbytes));
  line.set("disk_written_bytes", static_cast<int64_t>(metrics.disk_written_nbytes));
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
  fd_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) throw_unwritable(path);
}

MetricsFile::~MetricsFile() { ::close(fd_); }

void MetricsFile::append(const std::string& line) {
  const std::string whole = line + "\n";
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  size_t written = 0;
  while (written < whole.size()) {
    const ssize_t n = ::write(fd_, whole.data() + written, whole.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int reason = errno;
      if (written > 0 && ::ftruncate(fd_, before) != 0) errno = reason;  // a half line stays; a resume passes over it
      errno = reason;
      throw_unwritable(path_);
    }
    written += static_cast<size_t>(n);
  }
}

}  // namespace shoal::train
