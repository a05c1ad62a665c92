// See state_chunks.h.
#include "plan/state_chunks.h"

#include <algorithm>

#include "layout/cut.h"
#include "plan/memory.h"

namespace shoal {

namespace {

StateChunk chunk_of(int unit, int flat, DType dtype, int64_t begin, int64_t end, const ChunkOptions& options) {
  StateChunk chunk{.unit = unit, .flat = flat, .begin = begin, .end = end};
  const auto numel = static_cast<size_t>(end - begin);
  const size_t moment = numel * nbytes_of(options.moment_dtype);
  chunk.second = options.moments > 0 ? moment : 0;
  chunk.master = chunk.second + (options.moments > 1 ? moment : 0);
  chunk.nbytes = chunk.master + numel * master_nbytes(dtype, options.narrow_masters);
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
  const Cuts cuts(layout.mesh, options.rank, options.stage);
  std::vector<Run> runs;
  for (int unit = 0; unit < static_cast<int>(layout.units.size()); ++unit) {
    const std::vector<FlatLayout>& flats = layout.units[static_cast<size_t>(unit)].flats;
    for (int index = 0; index < static_cast<int>(flats.size()); ++index) {
      const FlatLayout& flat = flats[static_cast<size_t>(index)];
      if (!flat.trainable || flat.numel == 0) continue;
      const Cut cut = cuts.states(flat);
      const size_t element = nbytes_of(options.moment_dtype) * static_cast<size_t>(options.moments) +
                             master_nbytes(flat.dtype, options.narrow_masters);
      runs.push_back({unit, index, flat.dtype, cut.begin, cut.end, static_cast<size_t>(cut.numel()) * element});
    }
  }
  return runs;
}

}  // namespace

std::vector<StateChunk> cut_states(const ModelLayout& layout, const ChunkOptions& options) {
  const std::vector<Run> runs = runs_of(layout, options);
  double total = 0;
  for (const Run& run : runs) total += static_cast<double>(run.nbytes);
  // Bytes before which a tier ends, counted from the front.
  const double on_disk = options.tier == Tier::disk ? std::min(options.ratio, options.disk_ratio) : 0;
  const double device_ends = options.tier == Tier::device ? total : total * (1 - options.ratio);
  const double host_ends = options.tier == Tier::device ? total : total * (1 - on_disk);
  const int64_t step = (options.chunk_numel + kChunkGranule - 1) / kChunkGranule * kChunkGranule;

  std::vector<StateChunk> chunks;
  double passed = 0;
  for (const Run& run : runs) {
    // The element before which a tier ends.
    const auto element_at = [&](double nbytes) {
      const double share = run.nbytes == 0 ? 1 : (nbytes - passed) / static_cast<double>(run.nbytes);
      if (share >= 1) return run.end;
      const auto numel = static_cast<int64_t>(std::max(share, 0.0) * static_cast<double>(run.end - run.begin));
      return run.begin + numel / kChunkGranule * kChunkGranule;
    };
    const auto cut = [&](int64_t from, int64_t to, Tier tier) {
      const int64_t each = tier == Tier::device ? to - from : step;
      for (int64_t begin = from; begin < to; begin += each) {
        chunks.push_back(chunk_of(run.unit, run.flat, run.dtype, begin, std::min(to, begin + each), options));
        chunks.back().tier = tier;
      }
    };
    const int64_t of_host = element_at(device_ends), of_disk = std::max(of_host, element_at(host_ends));
    cut(run.begin, of_host, Tier::device);
    cut(of_host, of_disk, Tier::host);
    cut(of_disk, run.end, Tier::disk);
    passed += static_cast<double>(run.nbytes);
  }
  return chunks;
}

}  // namespace shoal
