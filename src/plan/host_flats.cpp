// See host_flats.h.
#include "plan/host_flats.h"

namespace shoal {

HostFlats updated_by_host_alone(const ModelLayout& layout, const std::vector<StateChunk>& chunks, bool streams) {
  HostFlats of_host, of_gpu;
  for (const UnitLayout& unit : layout.units) {
    of_host.emplace_back(unit.flats.size(), false);
    of_gpu.emplace_back(unit.flats.size(), false);
  }
  for (const StateChunk& chunk : chunks) {
    const bool by_host = chunk.tier == Tier::disk || (chunk.tier == Tier::host && !streams);
    (by_host ? of_host : of_gpu)[static_cast<size_t>(chunk.unit)][static_cast<size_t>(chunk.flat)] = true;
  }
  for (size_t unit = 0; unit < of_host.size(); ++unit) {
    for (size_t flat = 0; flat < of_host[unit].size(); ++flat) {
      if (of_gpu[unit][flat]) of_host[unit][flat] = false;
    }
  }
  return of_host;
}

}  // namespace shoal
