// See block_io.h: which implementation is taken.
#include "store/block_io.h"

namespace shoal {

std::unique_ptr<BlockIo> make_block_io(int depth, bool use_uring) {
  if (!use_uring) return make_thread_io(depth, "io_uring is turned off");
  std::string why_not;
  if (auto io = make_uring_io(depth, &why_not)) return io;
  return make_thread_io(depth, why_not);
}

}  // namespace shoal
