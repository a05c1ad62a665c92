// See cluster.h. The presets: numbers of the makers' data sheets, dense, one way.
#include "forecast/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>

#include "base/text.h"
#include "shoal/error.h"

namespace shoal::forecast {

namespace {

constexpr double kTera = 1e12, kGiga = 1e9;
constexpr size_t kGi = size_t{1} << 30;
constexpr double kHopInside = 3e-6, kHopBetween = 8e-6;

struct GpuRow {
  Gpu gpu;
  double nvlink = 0;  // GB/s one way; 0: none
  double pcie = 0;    // GB/s one way
  int gpus_per_host = 8;
  bool has_nvlink() const { return nvlink > 0; }
};

// FLOP/s in TFLOP/s of bf16 (V100: fp16), fp8, fp32; memory bandwidth in GB/s; memory in GiB; watts.
GpuRow row(const char* name, double bf16, double fp8, double fp32, double bandwidth, size_t gib, double watts,
           double nvlink, double pcie) {
  return {{.name = name,
           .bf16_flops = bf16 * kTera,
           .fp8_flops = fp8 * kTera,
           .fp32_flops = fp32 * kTera,
           .memory_bandwidth = bandwidth * kGiga,
           .memory = gib * kGi,
           .watts = watts},
          nvlink * kGiga,
          pcie * kGiga};
}

const std::vector<GpuRow>& gpu_rows() {
  // nvidia.com: V100, A100, H100, H200, DGX B200, GB200 NVL72, GeForce RTX 4090 (bf16 with sums in fp32).
  static const std::vector<GpuRow> kRows = [] {
    std::vector<GpuRow> rows = {
        row("V100", 125, 0, 15.7, 900, 32, 300, 150, 13),        row("A100-40", 312, 0, 19.5, 1555, 40, 400, 300, 25),
        row("A100-80", 312, 0, 19.5, 2039, 80, 400, 300, 25),    row("H100", 989, 1979, 67, 3350, 80, 700, 450, 55),
        row("H200", 989, 1979, 67, 4800, 141, 700, 450, 55),     row("B200", 2250, 4500, 80, 8000, 180, 1000, 900, 55),
        row("GB200", 2500, 5000, 80, 8000, 186, 1200, 900, 200), row("4090", 165, 330, 82.6, 1008, 24, 450, 0, 25),
    };
    return rows;
  }();
  return kRows;
}

const GpuRow* find_row(std::string_view name) {
  for (const GpuRow& each : gpu_rows()) {
    if (each.gpu.name == name) return &each;
  }
  return nullptr;
}

Link network(double gbits) {
  return {.name = fmt::format("{:g} Gb/s", gbits), .bandwidth = gbits * kGiga / 8, .latency = kHopBetween};
}

Cluster preset(const GpuRow& of) {
  Cluster cluster;
  cluster.gpu = of.gpu;
  cluster.inside = inside_link(of.has_nvlink() ? "NVLink" : "PCIe", of.gpu, "");
  const std::string& name = of.gpu.name;
  cluster.between = network(name == "V100" ? 100 : name == "4090" ? 100 : name.starts_with("A100") ? 1600 : 3200);
  cluster.host = {.memory = 1024 * kGi,
                  .memory_bandwidth = 200 * kGiga,
                  .bus = of.pcie,
                  .disk_read = 6 * kGiga,
                  .disk_write = 4 * kGiga};
  if (name == "GB200") {  // NVL72: one domain of NVLink, 18 trays
    cluster.gpus_per_host = 72;
    cluster.host.memory = 17280 * kGi;
    cluster.host.memory_bandwidth = 18000 * kGiga;
    cluster.between = network(72 * 400);
  }
  if (name == "4090") cluster.host.memory = 512 * kGi;
  return cluster;
}

}  // namespace

const std::vector<Cluster>& cluster_presets() {
  static const std::vector<Cluster> kPresets = [] {
    std::vector<Cluster> presets;
    for (const GpuRow& each : gpu_rows()) presets.push_back(preset(each));
    return presets;
  }();
  return kPresets;
}

const Cluster* find_cluster(std::string_view name) {
  for (const Cluster& each : cluster_presets()) {
    if (each.gpu.name == name) return &each;
  }
  return nullptr;
}

std::vector<std::string> cluster_names() {
  std::vector<std::string> names;
  for (const Cluster& each : cluster_presets()) names.push_back(each.gpu.name);
  return names;
}

Link inside_link(std::string_view name, const Gpu& gpu, std::string_view place) {
  const GpuRow* of = find_row(gpu.name);
  if (name == "NVLink") {
    if (of == nullptr || !of->has_nvlink()) {
      throw Error(place, fmt::format("a GPU \"{}\" is not known to have NVLink. Give \"PCIe\", or the numbers: "
                                     "{{\"gbytes_per_second\": 450}}.",
                                     gpu.name));
    }
    return {.name = "NVLink", .bandwidth = of->nvlink, .latency = kHopInside};
  }
  if (name == "PCIe") {
    return {.name = "PCIe",
            .bandwidth = of == nullptr ? 25 * kGiga : std::min(of->pcie, 55 * kGiga),
            .latency = kHopBetween};
  }
  throw Error(place, fmt::format("\"{}\" is no link inside a host. Give NVLink, PCIe, or the numbers: "
                                 "{{\"gbytes_per_second\": 450}}.",
                                 name));
}

Link between_link(std::string_view text, std::string_view place) {
  double gbits = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), gbits);
  std::string unit;
  std::copy_if(end, text.data() + text.size(), std::back_inserter(unit), [](char c) { return c != ' '; });
  // Bits, which a small b says: GB/s is eight times as much.
  constexpr std::array<std::string_view, 6> kUnits = {"", "Gb/s", "Gbps", "gbps", "Gbit/s", "gbit/s"};
  const bool known_unit = std::find(kUnits.begin(), kUnits.end(), unit) != kUnits.end();
  if (error != std::errc() || !std::isfinite(gbits) || gbits <= 0 || !known_unit) {
    throw Error(place,
                fmt::format("\"{}\" is no speed of a network. Give Gb/s of a host, as 400 or \"400 Gb/s\".", text));
  }
  return network(gbits);
}

std::string describe(const Cluster& cluster) {
  std::string text = fmt::format("{} host{} of {} x {}, {} inside", cluster.hosts, cluster.hosts == 1 ? "" : "s",
                                 cluster.gpus_per_host, cluster.gpu.name, cluster.inside.name);
  if (cluster.hosts > 1) text += ", " + cluster.between.name + " between";
  return text;
}

}  // namespace shoal::forecast
