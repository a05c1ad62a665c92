// make_thread_groups: ranks as threads of this process.
#include <fmt/format.h>

#include "comm/host/board_carrier.h"
#include "comm/host/thread_board.h"
#include "comm/world/channel_group.h"
#include "shoal/error.h"
#include "shoal/group.h"

namespace shoal {

std::vector<std::unique_ptr<Group>> make_thread_groups(int size, Timeout timeout, const std::vector<int>& hosts) {
  if (size < 1) throw Error("comm threads", fmt::format("{} is no number of ranks. Give at least 1.", size));
  if (!hosts.empty() && hosts.size() != static_cast<size_t>(size)) {
    throw Error(
        "comm threads",
        fmt::format("there are {} ranks, and hosts are given for {}. Give one for each, or none.", size, hosts.size()));
  }
  const auto world = std::make_shared<ThreadWorld>(timeout);
  std::vector<std::unique_ptr<Group>> groups;
  for (int rank = 0; rank < size; ++rank) {
    auto board = std::make_unique<ThreadBoard>(world, Members::all(size, rank, hosts), "");
    groups.push_back(std::make_unique<ChannelGroup>(std::make_unique<BoardCarrier>(std::move(board))));
  }
  return groups;
}

}  // namespace shoal
