// See gpu_route.h.
#include "comm/gpu/gpu_route.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "shoal/error.h"

namespace shoal {

GpuRoute choose_gpu_route(const std::vector<GpuSeat>& seats, bool only_nccl) {
  std::map<std::pair<std::string, std::string>, int> taken;
  for (const GpuSeat& seat : seats) {
    const auto [first, is_new] = taken.try_emplace({seat.gpu, seat.host_id}, seat.rank);
    if (is_new) continue;
    if (!only_nccl) return GpuRoute::staged;
    throw Error("config shoal.transport",
                fmt::format("nccl takes no two ranks on one GPU, and ranks {} and {} share one{}. Give each a GPU of "
                            "its own; or start them by `shoal launch --share-gpu`, which gives each an NCCL_HOSTID of "
                            "its own; or use auto, which goes through the hosts.",
                            first->second, seat.rank,
                            seat.host_id.empty() ? "" : fmt::format(" and NCCL_HOSTID={}", seat.host_id)));
  }
  return GpuRoute::nccl;
}

}  // namespace shoal
