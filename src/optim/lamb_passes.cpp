// See lamb_passes.h.
#include "optim/lamb_passes.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/segment.h"
#include "kernels/trust_ratio.h"

namespace shoal {

namespace {

constexpr int64_t kWindowNumel = int64_t{1} << 20;  // a multiple of a block of sums

template <class T>
std::shared_ptr<Slab> in_memory_of(Queue& queue, const std::vector<T>& values, const std::shared_ptr<Ledger>& ledger) {
  const size_t nbytes = values.size() * sizeof(T);
  std::shared_ptr<Slab> slab = queue.allocate(nbytes, ledger, MemoryKind::staging);
  if (nbytes > 0) queue.upload(slab->data(), values.data(), nbytes);
  return slab;
}

double* doubles(const std::shared_ptr<Slab>& slab) { return reinterpret_cast<double*>(slab->data()); }

}  // namespace

LambPasses::LambPasses(const ModelLayout& layout, const Stage& stage, const std::vector<std::vector<int>>& groups,
                       Group& channel, Queue& queue, std::shared_ptr<Ledger> ledger)
    : layout_(layout), channel_(channel), queue_(queue), ledger_(std::move(ledger)), units_(layout.units.size()) {
  size_t places = 0, params = 0;
  int64_t window = 0;
  for (size_t index = 0; index < units_.size(); ++index) {
    Unit& unit = units_[index];
    unit.tops = param_tops(layout.units[index], stage, layout.mesh);
    std::vector<kernels::TopRange> ranges;
    std::vector<kernels::TrustParam> of_params;
    for (const ParamTops& param : unit.tops.params) {
      const int group = groups[index][static_cast<size_t>(param.param)];
      of_params.push_back({static_cast<int64_t>(ranges.size()), static_cast<int64_t>(param.parts.size()), group});
      for (const ParamPart& part : param.parts) {
        const int64_t first = part.rank * unit.tops.places + param.offset;
        ranges.push_back({part.end, first, first + param.places});
        window = std::max(window, (part.end - part.begin) * kRunNumel);
      }
    }
    unit.ranges = in_memory_of(queue_, ranges, ledger_);
    unit.params = in_memory_of(queue_, of_params, ledger_);
    places = std::max(places, static_cast<size_t>(unit.tops.places));
    params = std::max(params, of_params.size());
  }
  const auto allocate = [&](size_t nbytes) { return queue_.allocate(nbytes, ledger_, MemoryKind::staging); };
  scratch_ = allocate(static_cast<size_t>(std::min(window, kWindowNumel)) * sizeof(float));
  own_ = allocate(places * sizeof(double));
  queue_.zero(own_->data(), own_->nbytes());  // places that this rank does not need travel too
  all_ = allocate(places * static_cast<size_t>(channel.size()) * sizeof(double));
  steps_ = allocate(params * sizeof(kernels::LambStep));
}

void LambPasses::forget() {
  for (Unit& unit : units_) {
    unit.is_listed = false;
    unit.windows.clear();
    unit.sums.clear();
    unit.application.reset();
  }
}

void LambPasses::list(int index, const std::vector<Run>& runs) {
  Unit& unit = units_[static_cast<size_t>(index)];
  const auto tops_of = [&](int param) -> std::pair<size_t, const ParamTops&> {
    for (size_t i = 0; i < unit.tops.params.size(); ++i) {
      if (unit.tops.params[i].param == param) return {i, unit.tops.params[i]};
    }
    SHOAL_CHECK(false, "parameter {} of unit {} is not trained", param, index);
  };
  size_t pieces = 0;
  for (const Run& run : runs) {
    SHOAL_CHECK_EQ(run.param_offset % kRunNumel, 0);
    const int64_t begin = run.param_offset / kRunNumel;
    pieces += 2 * static_cast<size_t>(piece_count(begin, begin + runs_of(run.segment.numel)));
  }
  unit.pieces = queue_.allocate(pieces * sizeof(double), ledger_, MemoryKind::staging);
  double* next = doubles(unit.pieces);
  std::vector<kernels::Segment> segments;
  std::vector<int> params;
  for (const Run& run : runs) {
    const auto [number, tops] = tops_of(run.param);
    const int64_t begin = run.param_offset / kRunNumel, end = begin + runs_of(run.segment.numel);
    const int64_t count = piece_count(begin, end);
    double *weight_pieces = next, *update_pieces = next + count;
    next += 2 * count;
    unit.sums.push_back({weight_pieces, begin, end, doubles(own_) + tops.offset});
    unit.sums.push_back({update_pieces, begin, end, doubles(own_) + tops.offset + tops.places});
    const int64_t after = run.param_offset + run.segment.numel;
    for (int64_t at = run.param_offset; at < after;) {
      const int64_t window_end = std::min(after, (at / kWindowNumel + 1) * kWindowNumel);
      Window window;
      window.segment = kernels::part_of(run.segment, at - run.param_offset, window_end - run.param_offset);
      window.first_run = at / kRunNumel;
      window.weight_pieces = weight_pieces;
      window.update_pieces = update_pieces;
      kernels::Segment direction = window.segment;
      direction.weight = scratch_->data();
      direction.weight_dtype = DType::f32;
      direction.master_kind = kernels::Master::weight;
      direction.master = nullptr;
      window.direction = queue_.make_update_list({direction}, {run.group});
      const int64_t made = piece_count(window.first_run, window.first_run + runs_of(window_end - at));
      weight_pieces += made;
      update_pieces += made;
      unit.windows.push_back(std::move(window));
      at = window_end;
    }
    segments.push_back(run.segment);
    params.push_back(static_cast<int>(number));
  }
  unit.application = queue_.make_update_list(std::move(segments), std::move(params));
  unit.is_listed = true;
}

void LambPasses::update(int index, const PlacedSteps& placed) {
  Unit& unit = units_[static_cast<size_t>(index)];
  SHOAL_CHECK(unit.is_listed, "unit {}", index);
  if (unit.tops.params.empty()) return;
  auto* const scratch = reinterpret_cast<float*>(scratch_->data());
  for (const Window& window : unit.windows) {
    const int64_t numel = window.segment.numel;
    queue_.read_masters(window.segment, scratch);
    queue_.sum_squares(scratch, DType::f32, numel, window.first_run, window.weight_pieces);
    queue_.update(*window.direction, placed);
    queue_.sum_squares(scratch, DType::f32, numel, window.first_run, window.update_pieces);
  }
  queue_.sum_pieces(unit.sums);
  channel_
      .all_gather({.subject = {"trust ratios", layout_.units[static_cast<size_t>(index)].name},
                   .shard = own_->data(),
                   .whole = all_->data(),
                   .shard_nbytes = static_cast<size_t>(unit.tops.places) * sizeof(double),
                   .keep = nullptr})
      .wait();
  auto* const steps = reinterpret_cast<kernels::LambStep*>(steps_->data());
  queue_.trust_ratios({.tops = doubles(all_),
                       .ranges = reinterpret_cast<const kernels::TopRange*>(unit.ranges->data()),
                       .params = reinterpret_cast<const kernels::TrustParam*>(unit.params->data()),
                       .count = static_cast<int64_t>(unit.tops.params.size()),
                       .groups = std::get<const kernels::LambStep*>(placed.of_groups),
                       .steps = steps});
  queue_.update(*unit.application, {steps, placed.apply});
}

}  // namespace shoal
