// See cut.h.
#include "layout/cut.h"

namespace shoal {

Cut cut(const FlatLayout& flat, Over over, const Mesh& mesh, int rank) {
  Cut part{.over = over};
  const int shards = mesh.size_of(kShard), shard = mesh.at(rank, kShard);
  switch (over) {
    case Over::nobody: break;
    case Over::shard:
      part.parts = shards;
      part.index = shard;
      break;
    case Over::world: {
      const int replicas = mesh.world() / shards;
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

}  // namespace shoal
