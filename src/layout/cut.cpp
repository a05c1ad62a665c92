// See cut.h.
#include "layout/cut.h"

namespace shoal {

Cut cut(const FlatLayout& flat, Over over, const Mesh& mesh, int rank) {
  Cut part{.over = over};
  const int inner = mesh.at(rank, kShard), shard = inner * mesh.size_of(kSpan) + mesh.at(rank, kSpan);
  switch (over) {
    case Over::nobody: break;
    case Over::inner:
      part.parts = mesh.size_of(kShard);
      part.index = inner;
      break;
    case Over::shard:
      part.parts = mesh.shards();
      part.index = shard;
      break;
    case Over::world: {
      const int replicas = mesh.world() / mesh.shards();
      part.parts = mesh.world();
      part.index = shard * replicas + mesh.at(rank, kReplica);
      break;
    }
  }
  const int64_t numel = numel_over(flat, over);
  part.begin = part.index * numel;
  part.end = part.begin + numel;
  return part;
}

std::vector<int> ranks_by_part(const Mesh& mesh) {
  std::vector<int> ranks(static_cast<size_t>(mesh.world()));
  for (int rank = 0; rank < mesh.world(); ++rank) {
    ranks[static_cast<size_t>(cut({}, Over::world, mesh, rank).index)] = rank;
  }
  return ranks;
}

}  // namespace shoal
