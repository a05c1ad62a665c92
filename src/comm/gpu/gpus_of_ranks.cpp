// See gpus_of_ranks.h.
#include "comm/gpu/gpus_of_ranks.h"

#include <algorithm>

#include "device/cuda.h"

namespace shoal {

std::vector<std::string> gpus_of_ranks(Group& host, int device) {
  constexpr size_t kNbytes = 64;
  std::string own = cuda::identity_of(device);
  own.resize(kNbytes, '\0');
  std::string all(kNbytes * static_cast<size_t>(host.size()), '\0');
  host.all_gather({.subject = {"say which GPU", "all ranks"},
                   .shard = own.data(),
                   .whole = all.data(),
                   .shard_nbytes = kNbytes,
                   .keep = nullptr})
      .wait();
  std::vector<std::string> gpus;
  for (size_t rank = 0; rank < static_cast<size_t>(host.size()); ++rank) {
    gpus.push_back(all.substr(rank * kNbytes, kNbytes));
  }
  return gpus;
}

int ranks_that_share(const std::vector<std::string>& gpus, int rank) {
  return static_cast<int>(std::count(gpus.begin(), gpus.end(), gpus.at(static_cast<size_t>(rank))));
}

}  // namespace shoal
