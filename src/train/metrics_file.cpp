// See metrics_file.h.
#include "train/metrics_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "shoal/error.h"
#include "train/append_whole.h"

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
  if (!metrics.digest.empty()) line.set("digest", metrics.digest);
  line.set("tokens_per_s", finite(metrics.tokens_per_s));
  line.set("step_ms", finite(metrics.step_ms));
  line.set("wait_comm_ms", finite(metrics.wait_comm_ms));
  line.set("wait_host_ms", finite(metrics.wait_host_ms));
  line.set("wait_disk_ms", finite(metrics.wait_disk_ms));
  line.set("wait_weights_ms", finite(metrics.wait_weights_ms));
  line.set("wait_gradients_ms", finite(metrics.wait_gradients_ms));
  line.set("wait_losses_ms", finite(metrics.wait_losses_ms));
  line.set("carried_ms", finite(metrics.carried_ms));
  line.set("data_ms", finite(metrics.data_ms));
  line.set("save_ms", finite(metrics.save_ms));
  if (metrics.balance_loss) line.set("router_aux_loss", finite(*metrics.balance_loss));
  if (!metrics.busiest_experts.empty()) {
    json::Array busiest;  // a line a step: three digits say enough
    for (const double load : metrics.busiest_experts) busiest.emplace_back(std::round(load * 1000) / 1000);
    line.set("busiest_experts", std::move(busiest));
    line.set("idle_experts", metrics.idle_experts);
  }
  line.set("slow_rank", metrics.slow_rank ? json::Value(*metrics.slow_rank) : json::Value());
  line.set("host_to_gpu_bytes", static_cast<int64_t>(metrics.host_to_gpu_nbytes));
  line.set("gpu_to_host_bytes", static_cast<int64_t>(metrics.gpu_to_host_nbytes));
  line.set("disk_read_bytes", static_cast<int64_t>(metrics.disk_read_nbytes));
  line.set("disk_written_bytes", static_cast<int64_t>(metrics.disk_written_nbytes));
  line.set("sent_bytes", static_cast<int64_t>(metrics.sent_nbytes));
  line.set("sent_between_hosts_bytes", static_cast<int64_t>(metrics.sent_between_hosts_nbytes));
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

int64_t last_step_in(const std::string& path) {
  constexpr std::streamoff kTail = 1 << 16;  // many lines
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return 0;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff end = file.tellg();
  file.seekg(std::max<std::streamoff>(0, end - kTail));
  int64_t step = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    if (const int64_t found = step_of(line); found >= 0) step = found;
  }
  return step;
}

MetricsFile::MetricsFile(const std::string& path, int64_t after_step) : path_(path) {
  if (std::filesystem::is_regular_file(path)) std::filesystem::resize_file(path, nbytes_to_keep(path, after_step));
  fd_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) throw_unwritable(path);
}

MetricsFile::~MetricsFile() { ::close(fd_); }

void MetricsFile::append(const std::string& line) {
  if (const int reason = append_whole(fd_, line + "\n"); reason != 0) {
    errno = reason;
    throw_unwritable(path_);
  }
}

}  // namespace shoal::train
