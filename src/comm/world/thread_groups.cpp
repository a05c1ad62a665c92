// make_thread_groups: ranks as threads of this process.
#include <fmt/format.h>

#include "comm/host/board_carrier.h"
#include "comm/host/thread_board.h"
#include "comm/world/channel_group.h"
#include "shoal/error.h"
#include "shoal/group.h"

namespace shoal {

std::vector<std::unique_ptr<Group>> make_thread_groups(int size, Timeout timeout) {
  if (size < 1) throw Error("comm threads", fmt::format("{} is no number of ranks. Give at least 1.", size));
  const auto world = std::make_shared<ThreadWorld>(timeout);
  std::vector<std::unique_ptr<Group>> groups;
  for (int rank = 0; rank < size; ++rank) {
    auto board = std::make_unique<ThreadBoard>(world, Members::all(size, rank), "");
    groups.push_back(std::make_unique<ChannelGroup>(std::make_unique<BoardCarrier>(std::move(board))));
  }
  return groups;
}

}  // namespace shoal
