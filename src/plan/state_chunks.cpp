// See state_chunks.h.
#include "plan/state_chunks.h"

#include <algorithm>

#include "plan/memory.h"

namespace shoal {

namespace {

StateChunk chunk_of(int unit, int flat, DType dtype, int64_t begin, int64_t end, int moments) {
  StateChunk chunk{.unit = unit, .flat = flat, .begin = begin, .end = end};
  const auto numel = static_cast<size_t>(end - begin);
  chunk.second = moments > 0 ? numel * sizeof(float) : 0;
  chunk.master = chunk.second + (moments > 1 ? numel * sizeof(float) : 0);
  chunk.nbytes = chunk.master + numel * master_nbytes(dtype);
  return chunk;
}

// Elements that one flat's states on this rank cover.
struct Run {
  int unit = 0, flat = 0;
  DType dtype = DType::f32;
  int64_t begin = 0, end = 0;
  size_t nbytes = 0;
};

std::vector<Run> runs_of(const ModelLayout& layout, const ChunkOptions& options) {
  std::vector<Run> runs;
  for (int unit = 0; unit < static_cast<int>(layout.units.size()); ++unit) {
    const std::vector<FlatLayout>& flats = layout.units[static_cast<size_t>(unit)].flats;
    for (int index = 0; index < static_cast<int>(flats.size()); ++index) {
      const FlatLayout& flat = flats[static_cast<size_t>(index)];
      const int64_t numel = state_numel(flat, options.stage);
      if (numel == 0) continue;
      const int64_t begin = row_of(flat, options.stage).shard_states ? options.rank * flat.shard_numel : 0;
      const size_t element = sizeof(float) * static_cast<size_t>(options.moments) + master_nbytes(flat.dtype);
      runs.push_back({unit, index, flat.dtype, begin, begin + numel, static_cast<size_t>(numel) * element});
    }
  }
  return runs;
}

}  // namespace

std::vector<StateChunk> cut_states(const ModelLayout& layout, const ChunkOptions& options) {
  const std::vector<Run> runs = runs_of(layout, options);
  size_t total = 0;
  for (const Run& run : runs) total += run.nbytes;
  const bool offloads = options.tier != Tier::device;
  // Bytes that stay on the device, counted from the front.
  const double stays = offloads ? static_cast<double>(total) * (1 - options.ratio) : static_cast<double>(total);
  const int64_t step = (options.chunk_numel + kChunkGranule - 1) / kChunkGranule * kChunkGranule;

  std::vector<StateChunk> chunks;
  double passed = 0;
  for (const Run& run : runs) {
    const int64_t numel = run.end - run.begin;
    int64_t kept = numel;
    if (offloads) {
      const double share =
          run.nbytes == 0 ? 1 : std::clamp((stays - passed) / static_cast<double>(run.nbytes), 0.0, 1.0);
      kept =
          share >= 1 ? numel : static_cast<int64_t>(share * static_cast<double>(numel)) / kChunkGranule * kChunkGranule;
    }
    passed += static_cast<double>(run.nbytes);
    const int64_t middle = run.begin + kept;
    if (kept > 0) chunks.push_back(chunk_of(run.unit, run.flat, run.dtype, run.begin, middle, options.moments));
    for (int64_t begin = middle; begin < run.end; begin += step) {
      StateChunk chunk =
          chunk_of(run.unit, run.flat, run.dtype, begin, std::min(run.end, begin + step), options.moments);
      chunk.tier = options.tier;
      chunks.push_back(chunk);
    }
  }
  return chunks;
}

}  // namespace shoal
