// See updater.h.
#include "optim/updater.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "kernels/convert.h"
#include "plan/from_config.h"

namespace shoal {

namespace {

kernels::Master master_kind(DType dtype) {
  switch (dtype) {
    case DType::f32: return kernels::Master::weight;
    case DType::bf16: return kernels::Master::remainder;
    case DType::f16: return kernels::Master::full;
  }
  return kernels::Master::weight;
}

std::byte* advance(void* pointer, int64_t numel, size_t element) {
  return static_cast<std::byte*>(pointer) + static_cast<size_t>(numel) * element;
}

std::byte* weight_data(int unit, int flat, const Weights& weights) {
  return weights.is_sharded(unit, flat) ? weights.shard(unit, flat) : weights.whole(unit, flat);
}

Updater::Range common(Updater::Range a, Updater::Range b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

}  // namespace

Updater::Updater(const ModelLayout& layout, const std::vector<UnitSpec>& specs, int stage,
                 const OptimizerConfig& config, int rank, Queue& queue, std::shared_ptr<Ledger> ledger)
    : layout_(layout),
      stage_(stage),
      rank_(rank),
      config_(config),
      moments_(moments_of(config)),
      queue_(queue),
      lists_(layout.units.size()) {
  size_t offset = 0;
  for (size_t unit = 0; unit < layout_.units.size(); ++unit) {
    std::vector<Flat>& flats = units_.emplace_back();
    for (const FlatLayout& flat_layout : layout_.units[unit].flats) {
      Flat flat;
      if (flat_layout.trainable) {
        const bool sharded = row_of(flat_layout, stage_).shard_states;
        flat.begin = sharded ? rank_ * flat_layout.shard_numel : 0;
        flat.end = flat.begin + state_numel(flat_layout, stage_);
        const auto numel = static_cast<size_t>(flat.end - flat.begin);
        flat.first = offset;
        flat.second = flat.first + (moments_ > 0 ? numel * 4 : 0);
        flat.master = flat.second + (moments_ > 1 ? numel * 4 : 0);
        offset = flat.master + numel * master_nbytes(flat_layout.dtype);
      }
      flats.push_back(flat);
    }
    std::vector<int>& groups = groups_.emplace_back();
    for (const ParamSpec& param : specs[unit].params) groups.push_back(param.group);
  }
  slab_ = queue_.allocate(offset, std::move(ledger), MemoryKind::states);
}

Updater::Range Updater::kept_range(int unit, int flat_index) const {
  const Flat& flat = units_[static_cast<size_t>(unit)][static_cast<size_t>(flat_index)];
  return {flat.begin, flat.end};
}

float* Updater::moment(int which, int unit, int flat_index, int64_t element) const {
  SHOAL_CHECK_LT(which, moments_);
  const Flat& flat = units_[static_cast<size_t>(unit)][static_cast<size_t>(flat_index)];
  std::byte* moments = slab_->data() + (which == 0 ? flat.first : flat.second);
  return reinterpret_cast<float*>(moments) + (element - flat.begin);
}

void Updater::get_moment(int which, int unit, int flat, Range range, float* values) const {
  queue_.download(values, moment(which, unit, flat, range.begin),
                  static_cast<size_t>(range.end - range.begin) * sizeof(float));
}

void Updater::set_moment(int which, int unit, int flat, Range range, const float* values) {
  queue_.upload(moment(which, unit, flat, range.begin), values,
                static_cast<size_t>(range.end - range.begin) * sizeof(float));
}

void Updater::set_values(int unit, int flat_index, Range range, const float* values, Weights& weights) {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat_index)];
  const Flat& flat = units_[static_cast<size_t>(unit)][static_cast<size_t>(flat_index)];
  const bool split = layout.trainable && layout.dtype == DType::bf16;

  const Range kept_weights = weight_range(unit, flat_index, weights);
  const Range kept = common(range, kept_weights);
  if (kept.begin < kept.end) {
    std::byte* weight =
        advance(weight_data(unit, flat_index, weights), kept.begin - kept_weights.begin, nbytes_of(layout.dtype));
    const float* in = values + (kept.begin - range.begin);
    const int64_t numel = kept.end - kept.begin;
    std::vector<std::byte> made(static_cast<size_t>(numel) * nbytes_of(layout.dtype));
    if (split) {
      // The weight is the high half of its master everywhere, also where another rank keeps the remainder.
      auto* out = reinterpret_cast<uint16_t*>(made.data());
      queue_.on_host(numel, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = kernels::split_weight(in[i]);
      });
    } else {
      kernels::convert(in, DType::f32, made.data(), layout.dtype, numel);
    }
    queue_.upload(weight, made.data(), made.size());
  }

  const Range owned = common(range, {flat.begin, flat.end});
  if (!layout.trainable || owned.begin >= owned.end) return;
  std::byte* master = advance(slab_->data() + flat.master, owned.begin - flat.begin, master_nbytes(layout.dtype));
  const float* in = values + (owned.begin - range.begin);
  const auto numel = static_cast<size_t>(owned.end - owned.begin);
  if (split) {
    std::vector<uint16_t> remainders(numel);
    queue_.on_host(static_cast<int64_t>(numel), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        remainders[static_cast<size_t>(i)] = kernels::split_remainder(in[i]);
      }
    });
    queue_.upload(master, remainders.data(), numel * sizeof(uint16_t));
  } else if (layout.dtype == DType::f16) {
    queue_.upload(master, in, numel * sizeof(float));
  }
}

void Updater::get_values(int unit, int flat_index, Range range, float* values, const Weights& weights) const {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat_index)];
  const Flat& flat = units_[static_cast<size_t>(unit)][static_cast<size_t>(flat_index)];
  const Range kept = weight_range(unit, flat_index, weights);
  SHOAL_CHECK(kept.begin <= range.begin && range.end <= kept.end, "elements {} to {} are not kept", range.begin,
              range.end);
  const int64_t numel = range.end - range.begin;
  std::vector<std::byte> weight(static_cast<size_t>(numel) * nbytes_of(layout.dtype));
  queue_.download(weight.data(),
                  advance(weight_data(unit, flat_index, weights), range.begin - kept.begin, nbytes_of(layout.dtype)),
                  weight.size());
  if (!layout.trainable || layout.dtype == DType::f32) {
    kernels::convert(weight.data(), layout.dtype, values, DType::f32, numel);
    return;
  }
  SHOAL_CHECK(flat.begin <= range.begin && range.end <= flat.end, "masters {} to {} are not kept", range.begin,
              range.end);
  const std::byte* master = advance(slab_->data() + flat.master, range.begin - flat.begin, master_nbytes(layout.dtype));
  if (layout.dtype == DType::bf16) {
    std::vector<uint16_t> remainders(static_cast<size_t>(numel));
    queue_.download(remainders.data(), master, remainders.size() * sizeof(uint16_t));
    kernels::join(weight.data(), remainders.data(), values, numel);
  } else {
    queue_.download(values, master, static_cast<size_t>(numel) * sizeof(float));
  }
}

Updater::Range Updater::weight_range(int unit, int flat, const Weights& weights) const {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)];
  if (!weights.is_sharded(unit, flat)) return {0, layout.numel};
  return {rank_ * layout.shard_numel, (rank_ + 1) * layout.shard_numel};
}

void Updater::reset_param(int unit, int flat_index, const Piece& piece, const std::byte* whole, Weights& weights) {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat_index)];
  const Flat& flat = units_[static_cast<size_t>(unit)][static_cast<size_t>(flat_index)];
  const size_t element = nbytes_of(layout.dtype);
  const auto part_of = [&](int64_t begin, int64_t end) {
    const int64_t first = std::max(begin, piece.offset);
    return std::pair(first, std::max(first, std::min(end, piece.offset + piece.numel)));
  };
  if (weights.is_sharded(unit, flat_index)) {
    const int64_t begin = rank_ * layout.shard_numel;
    const auto [first, last] = part_of(begin, begin + layout.shard_numel);
    if (first < last) {
      queue_.copy(advance(weights.shard(unit, flat_index), first - begin, element),
                  whole + static_cast<size_t>(first) * element, static_cast<size_t>(last - first) * element);
    }
  }
  if (!layout.trainable || layout.dtype == DType::f32) return;
  const auto [first, last] = part_of(flat.begin, flat.end);
  if (first == last) return;
  std::byte* master = advance(slab_->data() + flat.master, first - flat.begin, master_nbytes(layout.dtype));
  if (layout.dtype == DType::bf16) {
    queue_.zero(master, static_cast<size_t>(last - first) * sizeof(uint16_t));
  } else {
    queue_.convert(whole + static_cast<size_t>(first) * element, layout.dtype, master, DType::f32, last - first);
  }
}

void Updater::update(int unit, const StepNumbers& numbers, Weights& weights, const Gradients& gradients) {
  std::unique_ptr<UpdateList>& list = lists_[static_cast<size_t>(unit)];
  if (!list) list = list_segments(unit, weights, gradients);
  queue_.update(*list, group_steps(numbers));
}

// Each parameter of the unit's trainable flats, as far as this rank keeps its states.
std::unique_ptr<UpdateList> Updater::list_segments(int unit, Weights& weights, const Gradients& gradients) const {
  const UnitLayout& unit_layout = layout_.units[static_cast<size_t>(unit)];
  std::vector<kernels::Segment> segments;
  std::vector<int> groups;
  for (int index = 0; index < static_cast<int>(unit_layout.flats.size()); ++index) {
    const FlatLayout& layout = unit_layout.flats[static_cast<size_t>(index)];
    if (!layout.trainable) continue;
    const Flat& flat = units_[static_cast<size_t>(unit)][static_cast<size_t>(index)];
    const bool sharded = row_of(layout, stage_).shard_states;
    std::byte* weight = sharded ? weights.shard(unit, index) : weights.whole(unit, index);
    const std::byte* grad = sharded ? gradients.shard(unit, index) : gradients.whole(unit, index);
    const DType grad_dtype = gradients.rule(unit, index).kept;
    for (const ParamRun& run_of_param : runs_in(layout, flat.begin, flat.end)) {
      const int64_t at = run_of_param.flat_offset - flat.begin;
      kernels::Segment segment;
      segment.numel = run_of_param.numel;
      segment.weight = advance(weight, at, nbytes_of(layout.dtype));
      segment.weight_dtype = layout.dtype;
      segment.master_kind = master_kind(layout.dtype);
      if (segment.master_kind != kernels::Master::weight) {
        segment.master = advance(slab_->data() + flat.master, at, master_nbytes(layout.dtype));
      }
      segment.grad = grad + static_cast<size_t>(at) * nbytes_of(grad_dtype);
      segment.grad_dtype = grad_dtype;
      if (moments_ > 0) segment.first = moment(0, unit, index, run_of_param.flat_offset);
      if (moments_ > 1) segment.second = moment(1, unit, index, run_of_param.flat_offset);
      segments.push_back(segment);
      groups.push_back(groups_[static_cast<size_t>(unit)][static_cast<size_t>(run_of_param.param)]);
    }
  }
  return queue_.make_update_list(std::move(segments), std::move(groups));
}

GroupSteps Updater::group_steps(const StepNumbers& numbers) const {
  const auto of_groups = [&](auto step, const auto& finish) {
    std::vector<decltype(step)> steps;
    for (size_t group = 0; group < numbers.lrs.size(); ++group) {
      step.grad_scale = static_cast<float>(numbers.grad_scale);
      step.lr = static_cast<float>(numbers.lrs[group]);
      step.weight_decay = static_cast<float>(numbers.weight_decays.at(group));
      finish(step);
      steps.push_back(step);
    }
    return steps;
  };
  switch (config_.kind) {
    case OptimizerKind::sgd:
      return of_groups(kernels::SgdStep{}, [&](kernels::SgdStep& step) {
        step.momentum = static_cast<float>(config_.momentum);
        step.dampening = static_cast<float>(config_.dampening);
        step.nesterov = config_.nesterov;
        step.first_step = numbers.step == 1;
      });
    case OptimizerKind::adagrad:
      return of_groups(kernels::AdagradStep{},
                       [&](kernels::AdagradStep& step) { step.eps = static_cast<float>(config_.eps); });
    case OptimizerKind::lion:
      return of_groups(kernels::LionStep{}, [&](kernels::LionStep& step) {
        step.beta1 = static_cast<float>(numbers.beta1);
        step.beta2 = static_cast<float>(numbers.beta2);
      });
    case OptimizerKind::adamw:
    case OptimizerKind::adam: break;
  }
  return of_groups(kernels::AdamStep{}, [&](kernels::AdamStep& step) {
    step.beta1 = static_cast<float>(numbers.beta1);
    step.beta2 = static_cast<float>(numbers.beta2);
    step.eps = static_cast<float>(config_.eps);
    step.decoupled = config_.kind == OptimizerKind::adamw;
    if (!config_.bias_correction) return;
    const auto t = static_cast<double>(numbers.step);
    step.inv_bias1 = static_cast<float>(1 / (1 - std::pow(numbers.beta1, t)));
    step.inv_sqrt_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(numbers.beta2, t)));
  });
}

}  // namespace shoal
