// See updater.h.
#include "optim/updater.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/convert.h"
#include "plan/from_config.h"
#include "shard/parallel.h"

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
                 const OptimizerConfig& config, int rank, std::shared_ptr<Ledger> ledger)
    : layout_(layout), stage_(stage), rank_(rank), config_(config), moments_(moments_of(config)) {
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
  slab_ = Slab::create(offset, Slab::Backing::anonymous, std::move(ledger), MemoryKind::states);
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
    if (split) {
      // The weight is the high half of its master everywhere, also where another rank keeps the remainder.
      auto* out = reinterpret_cast<uint16_t*>(weight);
      for (int64_t i = 0; i < kept.end - kept.begin; ++i) out[i] = kernels::split_weight(in[i]);
    } else {
      kernels::convert(in, DType::f32, weight, layout.dtype, kept.end - kept.begin);
    }
  }

  const Range owned = common(range, {flat.begin, flat.end});
  if (!layout.trainable || owned.begin >= owned.end) return;
  std::byte* master = advance(slab_->data() + flat.master, owned.begin - flat.begin, master_nbytes(layout.dtype));
  const float* in = values + (owned.begin - range.begin);
  if (split) {
    auto* out = reinterpret_cast<uint16_t*>(master);
    for (int64_t i = 0; i < owned.end - owned.begin; ++i) out[i] = kernels::split_remainder(in[i]);
  } else if (layout.dtype == DType::f16) {
    std::memcpy(master, in, static_cast<size_t>(owned.end - owned.begin) * sizeof(float));
  }
}

void Updater::get_values(int unit, int flat_index, Range range, float* values, const Weights& weights) const {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat_index)];
  const Flat& flat = units_[static_cast<size_t>(unit)][static_cast<size_t>(flat_index)];
  const Range kept = weight_range(unit, flat_index, weights);
  SHOAL_CHECK(kept.begin <= range.begin && range.end <= kept.end, "elements {} to {} are not kept", range.begin,
              range.end);
  const int64_t numel = range.end - range.begin;
  const std::byte* weight =
      advance(weight_data(unit, flat_index, weights), range.begin - kept.begin, nbytes_of(layout.dtype));
  if (!layout.trainable || layout.dtype == DType::f32) {
    kernels::convert(weight, layout.dtype, values, DType::f32, numel);
    return;
  }
  SHOAL_CHECK(flat.begin <= range.begin && range.end <= flat.end, "masters {} to {} are not kept", range.begin,
              range.end);
  const std::byte* master = advance(slab_->data() + flat.master, range.begin - flat.begin, master_nbytes(layout.dtype));
  if (layout.dtype == DType::bf16) {
    kernels::join(weight, master, values, numel);
  } else if (numel > 0) {
    std::memcpy(values, master, static_cast<size_t>(numel) * sizeof(float));
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
      std::memcpy(advance(weights.shard(unit, flat_index), first - begin, element),
                  whole + static_cast<size_t>(first) * element, static_cast<size_t>(last - first) * element);
    }
  }
  if (!layout.trainable || layout.dtype == DType::f32) return;
  const auto [first, last] = part_of(flat.begin, flat.end);
  if (first == last) return;
  std::byte* master = advance(slab_->data() + flat.master, first - flat.begin, master_nbytes(layout.dtype));
  if (layout.dtype == DType::bf16) {
    std::memset(master, 0, static_cast<size_t>(last - first) * sizeof(uint16_t));
  } else {
    kernels::convert(whole + static_cast<size_t>(first) * element, layout.dtype, master, DType::f32, last - first);
  }
}

void Updater::update(int unit, const StepNumbers& numbers, Weights& weights, const Gradients& gradients) {
  const UnitLayout& unit_layout = layout_.units[static_cast<size_t>(unit)];
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
      segment.grad = advance(const_cast<std::byte*>(grad), at, nbytes_of(grad_dtype));
      segment.grad_dtype = grad_dtype;
      if (moments_ > 0) segment.first = reinterpret_cast<float*>(advance(slab_->data() + flat.first, at, 4));
      if (moments_ > 1) segment.second = reinterpret_cast<float*>(advance(slab_->data() + flat.second, at, 4));
      run(segment, numbers, groups_[static_cast<size_t>(unit)][static_cast<size_t>(run_of_param.param)]);
    }
  }
}

void Updater::run(const kernels::Segment& whole, const StepNumbers& numbers, int group) const {
  const auto lr = static_cast<float>(numbers.lrs.at(static_cast<size_t>(group)));
  const auto weight_decay = static_cast<float>(numbers.weight_decays.at(static_cast<size_t>(group)));
  const auto grad_scale = static_cast<float>(numbers.grad_scale);
  const auto on_pieces = [&](const auto& kernel, const auto& step) {
    parallel_spans(whole.numel, [&](int64_t begin, int64_t end) {
      kernels::Segment piece = whole;
      piece.numel = end - begin;
      piece.weight = advance(whole.weight, begin, nbytes_of(whole.weight_dtype));
      if (whole.master != nullptr) piece.master = advance(whole.master, begin, master_nbytes(whole.weight_dtype));
      piece.grad = advance(const_cast<void*>(whole.grad), begin, nbytes_of(whole.grad_dtype));
      if (whole.first != nullptr) piece.first = whole.first + begin;
      if (whole.second != nullptr) piece.second = whole.second + begin;
      kernel(piece, step);
    });
  };
  switch (config_.kind) {
    case OptimizerKind::adamw:
    case OptimizerKind::adam: {
      kernels::AdamStep step;
      step.grad_scale = grad_scale;
      step.lr = lr;
      step.beta1 = static_cast<float>(numbers.beta1);
      step.beta2 = static_cast<float>(numbers.beta2);
      step.eps = static_cast<float>(config_.eps);
      step.weight_decay = weight_decay;
      step.decoupled = config_.kind == OptimizerKind::adamw;
      if (config_.bias_correction) {
        const auto t = static_cast<double>(numbers.step);
        step.inv_bias1 = static_cast<float>(1 / (1 - std::pow(numbers.beta1, t)));
        step.inv_sqrt_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(numbers.beta2, t)));
      }
      on_pieces(kernels::adam, step);
      return;
    }
    case OptimizerKind::sgd: {
      kernels::SgdStep step;
      step.grad_scale = grad_scale;
      step.lr = lr;
      step.momentum = static_cast<float>(config_.momentum);
      step.dampening = static_cast<float>(config_.dampening);
      step.weight_decay = weight_decay;
      step.nesterov = config_.nesterov;
      step.first_step = numbers.step == 1;
      on_pieces(kernels::sgd, step);
      return;
    }
    case OptimizerKind::adagrad: {
      kernels::AdagradStep step;
      step.grad_scale = grad_scale;
      step.lr = lr;
      step.eps = static_cast<float>(config_.eps);
      step.weight_decay = weight_decay;
      on_pieces(kernels::adagrad, step);
      return;
    }
    case OptimizerKind::lion: {
      kernels::LionStep step;
      step.grad_scale = grad_scale;
      step.lr = lr;
      step.beta1 = static_cast<float>(numbers.beta1);
      step.beta2 = static_cast<float>(numbers.beta2);
      step.weight_decay = weight_decay;
      on_pieces(kernels::lion, step);
      return;
    }
  }
}

}  // namespace shoal
