// The optimizer's states on one rank, cut into chunks, and the tier of each. A chunk is a run of elements of one flat
// whose states lie together and move between tiers together. Pure: the engine keeps states by it, the planner counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layout/flat_layout.h"
#include "layout/stage.h"
#include "shoal/config.h"

namespace shoal {

struct StateChunk {
  int unit = 0;
  int flat = 0;
  int64_t begin = 0, end = 0;                // elements of the flat
  size_t first = 0, second = 0, master = 0;  // where its moments and its masters begin, within the chunk
  size_t nbytes = 0;
  Tier tier = Tier::device;

  int64_t numel() const { return end - begin; }
};

struct ChunkOptions {
  Stage stage = 0;
  int rank = 0;
  int moments = 2;  // numbers per element
  DType moment_dtype = DType::f32;
  bool narrow_masters = false;             // weights of 16 bits are their own masters
  Tier tier = Tier::device;                // of what is offloaded
  double ratio = 1;                        // the share of bytes that is offloaded
  double disk_ratio = 1;                   // of the disk's tier: the share that goes there; the host has the rest
  int64_t chunk_numel = int64_t{1} << 22;  // of offloaded states; what stays on the device is not cut
};
inline constexpr int64_t kChunkGranule = 64;  // elements: cuts fall on multiples of it, which keeps vectors aligned

// The chunks in the order of units and elements, which is the order of the update. The front is on the device, for the
// next forward needs it first, then comes what is in host memory, then what is on disk.
std::vector<StateChunk> cut_states(const ModelLayout& layout, const ChunkOptions& options);

}  // namespace shoal
