// See flat_layout.h.
#include "layout/flat_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace shoal {

namespace {

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

FlatLayout& flat_for(UnitLayout& unit, const ParamSpec& param, bool persistent) {
  for (FlatLayout& flat : unit.flats) {
    if (flat.dtype == param.dtype && flat.trainable == param.trainable && flat.persistent == persistent) return flat;
  }
  FlatLayout flat;
  flat.dtype = param.dtype;
  flat.trainable = param.trainable;
  flat.persistent = persistent;
  return unit.flats.emplace_back(std::move(flat));
}

}  // namespace

ModelLayout lay_out(const std::vector<UnitSpec>& units, const LayoutOptions& options) {
  ModelLayout layout;
  layout.mesh = options.mesh;
  int64_t persistent_numel = 0;
  for (const UnitSpec& spec : units) {
    UnitLayout unit;
    unit.name = spec.name;
    unit.borrows = spec.borrows;
    for (int index = 0; index < static_cast<int>(spec.params.size()); ++index) {
      const ParamSpec& param = spec.params[index];
      const int64_t numel = param.numel();
      const bool persistent =
          numel <= options.persistence_threshold && numel <= options.model_persistence_threshold - persistent_numel;
      if (persistent) persistent_numel += numel;
      FlatLayout& flat = flat_for(unit, param, persistent);
      flat.pieces.push_back({index, flat.numel, numel});
      flat.numel += round_up(numel, kAlignNumel);
    }
    for (FlatLayout& flat : unit.flats) cut_evenly(flat, options.mesh);
    layout.units.push_back(std::move(unit));
  }
  return layout;
}

void cut_evenly(FlatLayout& flat, const Mesh& mesh) {
  flat.numel = round_up(flat.numel, kAlignNumel * mesh.world());
  flat.inner_numel = flat.numel / mesh.size_of(kShard);
  flat.shard_numel = flat.numel / mesh.shards();
  flat.rank_numel = flat.numel / mesh.world();
}

std::vector<ParamRun> runs_in(const FlatLayout& flat, int64_t begin, int64_t end) {
  std::vector<ParamRun> runs;
  for (const Piece& piece : flat.pieces) {
    const int64_t first = std::max(begin, piece.offset);
    const int64_t last = std::min(end, piece.offset + piece.numel);
    if (first < last) runs.push_back({piece.param, first - piece.offset, first, last - first});
  }
  return runs;
}

std::vector<std::pair<int64_t, int64_t>> gaps_of(const FlatLayout& flat) {
  std::vector<std::pair<int64_t, int64_t>> gaps;
  int64_t end = 0;
  for (const Piece& piece : flat.pieces) {
    if (piece.offset > end) gaps.emplace_back(end, piece.offset - end);
    end = piece.offset + piece.numel;
  }
  if (flat.numel > end) gaps.emplace_back(end, flat.numel - end);
  return gaps;
}

std::string to_text(const ModelLayout& layout) {
  std::string text = fmt::format("world {}\n", layout.mesh.to_text());
  for (const UnitLayout& unit : layout.units) {
    text += fmt::format("unit {}", unit.name);
    if (!unit.borrows.empty()) text += fmt::format(" borrows {}", fmt::join(unit.borrows, ","));
    text += "\n";
    for (const FlatLayout& flat : unit.flats) {
      text += fmt::format("  flat {} {}{} numel {} shard {}\n", name_of(flat.dtype),
                          flat.trainable ? "trainable" : "frozen", flat.persistent ? " persistent" : "", flat.numel,
                          flat.shard_numel);
      if (flat.rank_numel != flat.shard_numel) text.insert(text.size() - 1, fmt::format(" rank {}", flat.rank_numel));
      for (const Piece& piece : flat.pieces) {
        text += fmt::format("    param {} at {} numel {}\n", piece.param, piece.offset, piece.numel);
      }
    }
  }
  return text;
}

}  // namespace shoal
