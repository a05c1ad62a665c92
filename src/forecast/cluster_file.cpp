// See cluster.h: reading a cluster file.
//
//   file    = { "gpu": text | gpu, "gpus_per_host": int, "hosts": int, "inside": text | link,
//               "between": text | number of Gb/s | link, "host": host }
//   gpu     = { "name", "like", "bf16_tflops", "fp8_tflops", "fp32_tflops", "memory", "memory_gbytes_per_second",
//   "watts" } link    = { "name", "gbytes_per_second" | "gbits_per_second", "latency_us" } host    = { "memory",
//   "memory_gbytes_per_second", "bus_gbytes_per_second", "disk_read_gbytes_per_second",
//               "disk_write_gbytes_per_second" }
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>

#include "base/json.h"
#include "base/quantity.h"
#include "base/text.h"
#include "forecast/cluster.h"
#include "shoal/error.h"

namespace shoal::forecast {

namespace {

constexpr double kGbyte = 1e9, kTflop = 1e12;

// Reads members and collects what is wrong, so that one error says all of it.
class ClusterReader {
 public:
  explicit ClusterReader(std::string_view origin) : origin_(origin) {}

  void wrong(const std::string& path, const std::string& what) {
    mistakes_.push_back(path.empty() ? what : path + ": " + what);
  }
  void finish() const {
    if (mistakes_.empty()) return;
    throw Error("cluster " + std::string(origin_), join(mistakes_, " "));
  }
  // false: it is no object.
  bool check_keys(const json::Value& value, const std::string& path, const std::vector<std::string>& known) {
    if (!value.is_object()) {
      wrong(path, "must be an object {...}.");
      return false;
    }
    for (const json::Member& member : value.as_object()) {
      if (std::find(known.begin(), known.end(), member.key) != known.end()) continue;
      const std::string near = nearest_word(member.key, known);
      wrong(dotted(path, member.key), near.empty() ? fmt::format("unknown key. Known: {}.", join(known, ", "))
                                                   : fmt::format("unknown key. Did you mean \"{}\"?", near));
    }
    return true;
  }
  // A positive number times `unit`; 0 is taken where `may_be_zero`.
  void number(const json::Value& in, const std::string& path, const char* key, double unit, double& to,
              bool may_be_zero = false) {
    const json::Value* value = in.find(key);
    if (value == nullptr) return;
    const bool right = value->is_number() && std::isfinite(value->as_number()) &&
                       (value->as_number() > 0 || (may_be_zero && value->as_number() == 0)) && value->as_number() < 1e9;
    if (!right) {
      wrong(dotted(path, key), fmt::format("{} is not {}. Give a number such as 400.", json::write(*value),
                                           may_be_zero ? "0 or more" : "above 0"));
      return;
    }
    to = value->as_number() * unit;
  }
  void count(const json::Value& in, const char* key, int& to) {
    const json::Value* value = in.find(key);
    if (value == nullptr) return;
    if (!value->is_integer() || value->as_integer() < 1 || value->as_integer() > (1 << 20)) {
      wrong(key, fmt::format("{} is not a whole number from 1 on. Give one, such as 8.", json::write(*value)));
      return;
    }
    to = static_cast<int>(value->as_integer());
  }
  void nbytes(const json::Value& in, const std::string& path, const char* key, size_t& to) {
    const json::Value* value = in.find(key);
    if (value == nullptr) return;
    if (value->is_integer() && value->as_integer() > 0) {
      to = static_cast<size_t>(value->as_integer());
      return;
    }
    const ReadNbytes read = value->is_text()
                                ? read_nbytes(value->as_text())
                                : ReadNbytes{0, json::write(*value) + " is no amount. Give one like \"80GiB\"."};
    if (!read.mistake.empty()) {
      wrong(dotted(path, key), read.mistake);
      return;
    }
    to = static_cast<size_t>(read.nbytes);
  }
  void text(const json::Value& in, const std::string& path, const char* key, std::string& to) {
    const json::Value* value = in.find(key);
    if (value == nullptr) return;
    if (!value->is_text()) {
      wrong(dotted(path, key), json::write(*value) + " is not a text.");
      return;
    }
    to = value->as_text();
  }
  // A text that names something, given to `named`, whose error becomes one of this file.
  template <typename Named>
  void name(const json::Value& value, const std::string& path, const Named& named) {
    try {
      named(value.as_text());
    } catch (const Error& error) {
      const std::string what = error.what();
      const size_t end = what.find("] ");
      wrong(path, end == std::string::npos ? what : what.substr(end + 2));
    }
  }
  static std::string dotted(const std::string& path, const std::string& key) {
    return path.empty() ? key : path + "." + key;
  }

 private:
  std::string_view origin_;
  std::vector<std::string> mistakes_;
};

// The preset that a text names; the first one where it names none, which is an error of the file.
const Cluster& preset_named(ClusterReader& reader, const std::string& path, const std::string& name) {
  if (const Cluster* found = find_cluster(name)) return *found;
  const std::string near = nearest_word(name, cluster_names());
  reader.wrong(
      path, fmt::format("\"{}\" is no GPU that is known here.{} Known: {}; or give an object with its numbers.", name,
                        near.empty() ? "" : " Did you mean \"" + near + "\"?", join(cluster_names(), ", ")));
  return cluster_presets().front();
}

Cluster read_gpu(ClusterReader& reader, const json::Value& value) {
  if (value.is_text()) return preset_named(reader, "gpu", value.as_text());
  Cluster cluster;
  if (!reader.check_keys(value, "gpu",
                         {"name", "like", "bf16_tflops", "fp8_tflops", "fp32_tflops", "memory",
                          "memory_gbytes_per_second", "watts"})) {
    return cluster;
  }
  std::string like;
  reader.text(value, "gpu", "like", like);
  if (!like.empty()) {
    cluster = preset_named(reader, "gpu.like", like);
  } else {
    cluster.inside = {.name = "PCIe", .bandwidth = 25 * kGbyte, .latency = 8e-6};
    cluster.between = between_link("100", "");
    cluster.host = find_cluster("4090")->host;
    cluster.gpu.name = "GPU";
  }
  reader.text(value, "gpu", "name", cluster.gpu.name);
  reader.number(value, "gpu", "bf16_tflops", kTflop, cluster.gpu.bf16_flops, true);
  reader.number(value, "gpu", "fp8_tflops", kTflop, cluster.gpu.fp8_flops, true);
  reader.number(value, "gpu", "fp32_tflops", kTflop, cluster.gpu.fp32_flops, true);
  reader.number(value, "gpu", "memory_gbytes_per_second", kGbyte, cluster.gpu.memory_bandwidth);
  reader.number(value, "gpu", "watts", 1, cluster.gpu.watts, true);
  reader.nbytes(value, "gpu", "memory", cluster.gpu.memory);
  if (cluster.gpu.bf16_flops + cluster.gpu.fp32_flops == 0) reader.wrong("gpu.bf16_tflops", "is missing.");
  if (cluster.gpu.memory_bandwidth == 0) reader.wrong("gpu.memory_gbytes_per_second", "is missing.");
  if (cluster.gpu.memory == 0) reader.wrong("gpu.memory", "is missing.");
  return cluster;
}

void read_link(ClusterReader& reader, const json::Value& value, const std::string& path, Link& link) {
  if (!reader.check_keys(value, path, {"name", "gbytes_per_second", "gbits_per_second", "latency_us"})) return;
  const bool bytes = value.find("gbytes_per_second") != nullptr, bits = value.find("gbits_per_second") != nullptr;
  if (bytes == bits) {
    reader.wrong(path, "give one of gbytes_per_second and gbits_per_second.");
    return;
  }
  reader.number(value, path, "gbytes_per_second", kGbyte, link.bandwidth);
  reader.number(value, path, "gbits_per_second", kGbyte / 8, link.bandwidth);
  reader.number(value, path, "latency_us", 1e-6, link.latency, true);
  link.name =
      fmt::format("{:g} {}", bytes ? link.bandwidth / kGbyte : link.bandwidth * 8 / kGbyte, bytes ? "GB/s" : "Gb/s");
  reader.text(value, path, "name", link.name);
}

void read_host(ClusterReader& reader, const json::Value& value, Host& host) {
  if (!reader.check_keys(value, "host",
                         {"memory", "memory_gbytes_per_second", "bus_gbytes_per_second", "disk_read_gbytes_per_second",
                          "disk_write_gbytes_per_second"})) {
    return;
  }
  reader.nbytes(value, "host", "memory", host.memory);
  reader.number(value, "host", "memory_gbytes_per_second", kGbyte, host.memory_bandwidth);
  reader.number(value, "host", "bus_gbytes_per_second", kGbyte, host.bus);
  reader.number(value, "host", "disk_read_gbytes_per_second", kGbyte, host.disk_read, true);
  reader.number(value, "host", "disk_write_gbytes_per_second", kGbyte, host.disk_write, true);
}

}  // namespace

Cluster read_cluster(std::string_view text, std::string_view origin) {
  const json::Value root = json::parse(text, fmt::format("cluster {}", origin));
  ClusterReader reader(origin);
  Cluster cluster;
  if (!reader.check_keys(root, "", {"gpu", "gpus_per_host", "hosts", "inside", "between", "host"})) reader.finish();
  if (const json::Value* gpu = root.find("gpu")) {
    cluster = read_gpu(reader, *gpu);
  } else {
    reader.wrong("gpu", fmt::format("is missing. Name one of {}, or give an object with its numbers.",
                                    join(cluster_names(), ", ")));
  }
  reader.count(root, "gpus_per_host", cluster.gpus_per_host);
  reader.count(root, "hosts", cluster.hosts);
  if (const json::Value* inside = root.find("inside")) {
    if (inside->is_text()) {
      reader.name(*inside, "inside",
                  [&](const std::string& name) { cluster.inside = inside_link(name, cluster.gpu, "inside"); });
    } else {
      read_link(reader, *inside, "inside", cluster.inside);
    }
  }
  if (const json::Value* between = root.find("between")) {
    if (between->is_text()) {
      reader.name(*between, "between",
                  [&](const std::string& name) { cluster.between = between_link(name, "between"); });
    } else if (between->is_number()) {
      double gbits = 0;
      reader.number(root, "", "between", 1, gbits);
      if (gbits > 0) cluster.between = between_link(fmt::format("{:g}", gbits), "between");
    } else {
      read_link(reader, *between, "between", cluster.between);
    }
  }
  if (const json::Value* host = root.find("host")) read_host(reader, *host, cluster.host);
  reader.finish();
  return cluster;
}

Cluster open_cluster(const std::string& name) {
  if (const Cluster* found = find_cluster(name)) return *found;
  std::error_code error;
  if (!std::filesystem::is_regular_file(name, error)) {
    const std::string near = nearest_word(name, cluster_names());
    throw Error("--cluster",
                fmt::format("\"{}\" is neither a file nor a preset.{} Presets: {}.", name,
                            near.empty() ? "" : " Did you mean " + near + "?", join(cluster_names(), ", ")));
  }
  std::ifstream file(name);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) throw Error("--cluster", fmt::format("\"{}\" could not be read. Check its permissions.", name));
  return read_cluster(text.str(), name);
}

}  // namespace shoal::forecast
