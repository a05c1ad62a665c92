// Stands in for uring_io.cpp in a build without liburing.
#include "store/block_io.h"

namespace shoal {

std::unique_ptr<BlockIo> make_uring_io(int, std::string* why_not) {
  *why_not = "this build has no liburing";
  return nullptr;
}

}  // namespace shoal
