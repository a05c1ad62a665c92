// See auto_placement.h.
#include "train/auto_placement.h"

#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "device/cuda.h"
#include "engine/blueprint.h"
#include "plan/from_config.h"
#include "plan/placement.h"

namespace shoal::train {

namespace {

// Of the memory that is free: torch's allocator and the system need some of it for themselves.
constexpr double kDeviceShare = 0.97, kHostShare = 0.9;

std::string read_meminfo() {
  std::ifstream file("/proc/meminfo");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int ranks_of_this_host(const Group& world) {
  const char* local = std::getenv("LOCAL_WORLD_SIZE");
  const int count = local != nullptr ? std::atoi(local) : 0;
  return count > 0 ? count : world.size();
}

Room room_of(const Config& config, Group& world, at::Device device) {
  const auto share = [](size_t nbytes, double part) { return static_cast<size_t>(static_cast<double>(nbytes) * part); };
  const auto device_budget = static_cast<size_t>(config.shoal.device_budget);
  const auto host_budget = static_cast<size_t>(config.shoal.host_budget);
  const size_t of_host = host_budget > 0 ? host_budget : share(available_nbytes(read_meminfo()), kHostShare);
  return {device_budget > 0 ? device_budget : share(cuda::facts_of(device.index()).free_nbytes, kDeviceShare),
          of_host / static_cast<size_t>(ranks_of_this_host(world))};
}

}  // namespace

size_t available_nbytes(const std::string& meminfo) {
  std::istringstream lines(meminfo);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("MemAvailable:")) return std::strtoull(line.c_str() + 13, nullptr, 10) * 1024;
  }
  return 0;
}

const Config& carry_out_placement(PreparedRun& run, Group& world, at::Device device) {
  Config& config = run.config;
  if (!config.shoal.auto_placement) return config;
  config.shoal.auto_placement = false;
  if (!device.is_cuda()) {
    run.choices.push_back("placement auto: without a GPU there is one memory, and nothing is moved");
    return config;
  }
  // All ranks place alike, so one says how much there is.
  std::array<uint64_t, 2> numbers{};
  if (world.rank() == 0) {
    const Room room = room_of(config, world, device);
    numbers = {room.device, room.host};
  }
  world
      .broadcast({.subject = {"say how much memory there is", "rank 0"},
                  .data = numbers.data(),
                  .nbytes = sizeof(numbers),
                  .root = 0,
                  .keep = nullptr})
      .wait();
  const ModelLayout layout =
      lay_out(make_blueprint(run.model->units(), config, 1).specs, layout_options(config, world.size()));
  const size_t activations = run.model->activation_nbytes(config.batch.micro_batch_size, run.cut.sequence,
                                                          dtype_of(config.precision), device.type());
  const Placement placement = place(layout, config, {numbers[0], numbers[1]}, activations);
  config.zero.offload_optimizer = placement.optimizer;
  config.zero.offload_param = placement.param;
  run.choices.push_back("placement auto: " + placement.why);
  return config;
}

}  // namespace shoal::train
