// The machines of a run, as a forecast sees them: what their GPUs, links, hosts and disks can do by their makers'
// numbers. How much of that is reached in practice is no part of it: see calibration.h. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::forecast {

struct Gpu {
  std::string name;
  // Dense FLOP/s of matrix products, by the dtype of what is multiplied; 0: it has none in that dtype.
  double bf16_flops = 0;  // fp16 too
  double fp8_flops = 0;
  double fp32_flops = 0;
  double memory_bandwidth = 0;  // bytes a second
  size_t memory = 0;
  double watts = 0;  // that it may draw; 0: not known, and no limit is looked at
};

// One way, in bytes a second: a GPU's inside a host, all of a host's between hosts.
struct Link {
  std::string name;
  double bandwidth = 0;
  double latency = 0;  // seconds from one rank to the next
};

struct Host {
  size_t memory = 0;
  double memory_bandwidth = 0;           // bytes a second
  double bus = 0;                        // bytes a second from host to one GPU, and as many back
  double disk_read = 0, disk_write = 0;  // bytes a second, shared by the host's ranks; 0: no disk
};

struct Cluster {
  Gpu gpu;
  int gpus_per_host = 8;
  int hosts = 1;
  Link inside;
  Link between;
  Host host;

  int gpus() const { return gpus_per_host * hosts; }
};

// "A100-40", ...: one host of such GPUs, with the links and the host that they are usually sold with.
const std::vector<Cluster>& cluster_presets();
const Cluster* find_cluster(std::string_view name);
std::vector<std::string> cluster_names();

// "NVLink": that of the GPU's generation; "PCIe": through the host. Throws shoal::Error with this place.
Link inside_link(std::string_view name, const Gpu& gpu, std::string_view place);
// Of all network cards of a host together, in Gb/s: "400", "400 Gb/s", "3200Gbps". Throws likewise.
Link between_link(std::string_view text, std::string_view place);

// A cluster file (docs/plan.md), or the name of a preset. Throws shoal::Error with every mistake: unknown keys with the
// nearest known one, wrong types, what is missing, and numbers that no machine has.
Cluster read_cluster(std::string_view text, std::string_view origin);
// A preset where `name` is one, else the file of that path.
Cluster open_cluster(const std::string& name);

// "2 hosts of 8 x H100-80, NVLink, 3200 Gb/s".
std::string describe(const Cluster& cluster);

}  // namespace shoal::forecast
