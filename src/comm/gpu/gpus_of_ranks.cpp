// See gpus_of_ranks.h.
#include "comm/gpu/gpus_of_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/text.h"
#include "device/cuda.h"

namespace shoal {

namespace {

constexpr size_t kNbytes = 64;

// Every rank's text. Of one that is long its beginning travels, and a digest of the whole.
std::vector<std::string> texts_of_ranks(Group& host, const std::string& what, std::string own) {
  if (own.size() > kNbytes) own = fmt::format("{}#{:016x}", own.substr(0, kNbytes - 17), hash_text(own));
  own.resize(kNbytes, '\0');
  std::string all(kNbytes * static_cast<size_t>(host.size()), '\0');
  host.all_gather({.subject = {what, "all ranks"},
                   .shard = own.data(),
                   .whole = all.data(),
                   .shard_nbytes = kNbytes,
                   .keep = nullptr})
      .wait();
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < static_cast<size_t>(host.size()); ++rank) {
    texts.emplace_back(all.c_str() + rank * kNbytes, strnlen(all.c_str() + rank * kNbytes, kNbytes));
  }
  return texts;
}

}  // namespace

std::vector<std::string> gpus_of_ranks(Group& host, int device) {
  return texts_of_ranks(host, "say which GPU", cuda::identity_of(device));
}

std::vector<GpuSeat> gpu_seats_of_ranks(Group& host, int device) {
  const char* id = std::getenv("NCCL_HOSTID");
  const std::vector<std::string> gpus = gpus_of_ranks(host, device);
  const std::vector<std::string> ids = texts_of_ranks(host, "say which NCCL_HOSTID", id == nullptr ? "" : id);
  std::vector<GpuSeat> seats;
  for (size_t rank = 0; rank < gpus.size(); ++rank) seats.push_back({host.members()[rank], gpus[rank], ids[rank]});
  return seats;
}

int ranks_that_share(const std::vector<std::string>& gpus, int rank) {
  return static_cast<int>(std::count(gpus.begin(), gpus.end(), gpus.at(static_cast<size_t>(rank))));
}

}  // namespace shoal
