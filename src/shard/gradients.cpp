// See gradients.h.
#include "shard/gradients.h"

#include <ATen/ops/mul.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "comm/group/full_group.h"
#include "kernels/convert.h"
#include "kernels/reduce.h"
#include "layout/norm_tops.h"
#include "plan/memory.h"
#include "schedule/route.h"
#include "shard/param_slot.h"
#include "shoal/error.h"

namespace shoal {

namespace {

// What accumulate_more() makes of them.
GradientOptions with_more_micro_steps(GradientOptions options) {
  options.accumulation_steps = std::max<int64_t>(options.accumulation_steps, 2);
  options.reproducible = true;
  return options;
}

// Along which axes gradients travel, or may come to.
std::set<std::string_view> axes_of_gradients(const ModelLayout& layout, const GradientOptions& options) {
  return axes_of(layout, [&](const FlatLayout& flat) {
    const FlatRoutes now = routes_of(flat, options, layout.mesh);
    const FlatRoutes later = routes_of(flat, with_more_micro_steps(options), layout.mesh);
    return std::vector<Route>{now.reduce, now.share, later.reduce, later.share};
  });
}

}  // namespace

Gradients::Gradients(const ModelLayout& layout, const GradientOptions& options, const ReduceOptions& reduce,
                     Group& channel, Queue& queue, Queue& reduced, std::shared_ptr<Ledger> ledger,
                     const HostFlats& in_host)
    : layout_(layout),
      options_(options),
      cuts_(layout.mesh, channel.rank(), options.stage),
      reduce_(reduce),
      groups_(channel, layout.mesh, axes_of_gradients(layout, options)),
      queue_(queue),
      reduced_(reduced),
      ledger_(std::move(ledger)) {
  lay_out(in_host);
  make_sums();
}

void Gradients::lay_out(const HostFlats& in_host) {
  size_t kept_nbytes = 0, open_nbytes = 0;
  std::vector<size_t> home_nbytes(layout_.units.size(), 0);
  units_.resize(layout_.units.size());
  for (size_t number = 0; number < units_.size(); ++number) {
    const UnitLayout& unit_layout = layout_.units[number];
    Unit& unit = units_[number];
    unit.flats.resize(unit_layout.flats.size());
    size_t slot_offset = 0;
    for (size_t index = 0; index < unit_layout.flats.size(); ++index) {
      const FlatLayout& flat_layout = unit_layout.flats[index];
      Flat& flat = unit.flats[index];
      flat.trainable = flat_layout.trainable;
      if (flat.trainable) {
        flat.rule = gradient_rule(flat_layout, options_);
        flat.in_host = contains(in_host, number, index);
        size_t& nbytes = flat.in_host ? home_nbytes[number] : kept_nbytes;
        flat.kept_offset = nbytes;
        nbytes += static_cast<size_t>(kept_gradient_numel(flat_layout, options_)) * nbytes_of(flat.rule.kept);
        flat.open_offset = open_nbytes;
        open_nbytes += open_group_nbytes(flat_layout, options_);
        if (flat.rule.through_slot) {
          flat.slot_offset = slot_offset;
          slot_offset += static_cast<size_t>(flat_layout.numel) * nbytes_of(flat.rule.wire);
        }
      }
      for (const Piece& piece : flat_layout.pieces) {
        if (static_cast<size_t>(piece.param) >= unit.params.size())
          unit.params.resize(static_cast<size_t>(piece.param) + 1);
        if (flat_layout.trainable) {
          unit.params[static_cast<size_t>(piece.param)] = {
              .flat = static_cast<int>(index), .offset = piece.offset, .numel = piece.numel};
        }
      }
    }
    slot_nbytes_ = std::max(slot_nbytes_, slot_nbytes(unit_layout, options_));
  }
  kept_ = full(groups_.channel()).allocate(kept_nbytes, ledger_, MemoryKind::gradients);
  open_groups_ = full(groups_.channel()).allocate(open_nbytes, ledger_, MemoryKind::gradients);
  errors_ = SumErrors(layout_, options_, reduce_.errors, groups_.channel(), ledger_);
  if (std::any_of(home_nbytes.begin(), home_nbytes.end(), [](size_t nbytes) { return nbytes > 0; })) {
    homes_ =
        std::make_unique<GradientHomes>(home_nbytes, gradient_berths(options_), groups_.channel(), queue_, ledger_);
  }
  if (const size_t nbytes = sums_nbytes(layout_, options_); nbytes > 0) {
    sums_on_way_ = full(groups_.channel()).allocate(nbytes, ledger_, MemoryKind::reduce_slots);
  }
  for (int slot = 0; slot < reduce_.slots && slot_nbytes_ > 0; ++slot) {
    slots_.push_back({full(groups_.channel()).allocate(slot_nbytes_, ledger_, MemoryKind::reduce_slots), -1, {}, 0});
  }
}

void Gradients::accumulate_more() {
  SHOAL_CHECK(pending_.empty() && !homes_, "gradients are on their way, or wait in host memory");
  const std::vector<Unit> before = units_;
  const std::shared_ptr<Slab> kept_before = kept_;
  options_ = with_more_micro_steps(options_);
  slots_.clear();
  lay_out({});
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    for (size_t index = 0; index < units_[unit].flats.size(); ++index) {
      const Flat& from = before[unit].flats[index];
      const Flat& to = units_[unit].flats[index];
      if (!to.trainable) continue;
      SHOAL_CHECK_EQ(from.rule.kept_whole, to.rule.kept_whole);
      queue_.convert(kept_before->data() + from.kept_offset, from.rule.kept, kept_->data() + to.kept_offset,
                     to.rule.kept, kept_gradient_numel(layout_.units[unit].flats[index], options_));
    }
  }
  std::byte last{};  // what was read goes; the queue is through when it has answered
  if (kept_->nbytes() > 0) queue_.download(&last, kept_->data(), 1);
}

void Gradients::settle_slots() {
  if (waits_for_slots_) return;
  wait();
  waits_for_slots_ = true;
  while (static_cast<int>(slots_.size()) > reduce_.slots && slots_.back().unit < 0) slots_.pop_back();
}

void Gradients::make_sums() {
  const NormTops tops = norm_tops(layout_);
  int64_t pieces = 0;
  const auto for_each = [this](const auto& call) {
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      for (size_t index = 0; index < units_[unit].flats.size(); ++index) {
        if (units_[unit].flats[index].trainable) call(units_[unit].flats[index], layout_.units[unit].flats[index]);
      }
    }
  };
  for_each([&](const Flat&, const FlatLayout& layout) {
    const Cut own = cuts_.own(layout);
    flat_sums_.push_back({nullptr, own.begin / kRunNumel, own.end / kRunNumel, nullptr});
    pieces += piece_count(flat_sums_.back().begin, flat_sums_.back().end);
  });
  sums_ = queue_.allocate(static_cast<size_t>(tops.places + pieces) * sizeof(double), ledger_, MemoryKind::staging);
  queue_.zero(sums_->data(), sums_->nbytes());  // places that this rank does not need travel too
  auto* const memory = reinterpret_cast<double*>(sums_->data());
  double* piece_sums = memory + tops.places;
  size_t next = 0;
  for_each([&](Flat& flat, const FlatLayout&) {
    kernels::PieceSums& sum = flat_sums_[next];
    sum.tops = memory + tops.flats[next++].offset;
    sum.pieces = flat.piece_sums = piece_sums;
    piece_sums += piece_count(sum.begin, sum.end);
  });
}

void Gradients::begin_micro_step(int64_t index) {
  after_mean_ = index > 0 && last_;
  from_mean_ = index > 0 && (last_ || from_mean_);
  leaves_ = index == 0 || after_mean_ ? 0 : leaves_ + (index - micro_step_) * options_.data_ranks;
  micro_step_ = index;
  for (Unit& unit : units_) {
    for (Param& param : unit.params) param.seen = param.lent = false;
    unit.reduced = false;
    unit.reduces.clear();
  }
  if (homes_) homes_->begin_micro_step(/*brings=*/index > 0);
}

std::byte* Gradients::place_of(int unit_index, const Param& param) {
  const Flat& flat = units_[static_cast<size_t>(unit_index)].flats[static_cast<size_t>(param.flat)];
  std::byte* base = collects_in_slot(flat) ? slot_of(unit_index) + flat.slot_offset : work_place(unit_index, flat);
  return base + static_cast<size_t>(param.offset) * nbytes_of(collected_dtype(flat));
}

std::byte* Gradients::target(int unit_index, int param_index, DType dtype) {
  Unit& unit = units_[static_cast<size_t>(unit_index)];
  Param& param = unit.params[static_cast<size_t>(param_index)];
  SHOAL_CHECK(param.flat >= 0, "a frozen parameter is to get a gradient");
  const Flat& flat = unit.flats[static_cast<size_t>(param.flat)];
  if (unit.reduced || param.lent || is_added(flat, param) || collected_dtype(flat) != dtype) return nullptr;
  param.lent = true;
  return place_of(unit_index, param);
}

void Gradients::deposit(int unit_index, int param_index, const at::Tensor& grad, double factor) {
  Unit& unit = units_[static_cast<size_t>(unit_index)];
  Param& param = unit.params[static_cast<size_t>(param_index)];
  SHOAL_CHECK(param.flat >= 0, "a frozen parameter got a gradient");
  if (unit.reduced) {
    throw Error("gradient in unit " + layout_.units[static_cast<size_t>(unit_index)].name,
                "it came when the unit's gradients were reduced already. A function that back-propagates by itself "
                "uses the unit's parameters, and no use of the unit was seen there. If it is torch.utils.checkpoint, "
                "pass use_reentrant=False.");
  }
  if (!grad.defined() || grad.layout() != at::kStrided || grad.numel() != param.numel) {
    throw Error("gradient in unit " + layout_.units[static_cast<size_t>(unit_index)].name,
                "a parameter's gradient is sparse or has another shape than the parameter. Use dense gradients "
                "(embeddings with sparse=false).");
  }
  const at::Tensor dense = factor == 1 ? grad.contiguous() : at::mul(grad, factor).contiguous();
  const DType in = to_dtype(dense.scalar_type(), "gradient");
  const Flat& flat = unit.flats[static_cast<size_t>(param.flat)];
  const DType out = collected_dtype(flat);
  std::byte* to = place_of(unit_index, param);
  if (is_added(flat, param)) {
    SHOAL_CHECK(dense.const_data_ptr() != to, "a gradient was made where another one is already");
    queue_.add(dense.const_data_ptr(), in, to, out, param.numel);
  } else if (dense.const_data_ptr() != to) {  // else it was made there: see target()
    queue_.convert(dense.const_data_ptr(), in, to, out, param.numel);
  }
  param.seen = true;
}

void Gradients::reduce(int unit_index) {
  Unit& unit = units_[static_cast<size_t>(unit_index)];
  SHOAL_CHECK(!unit.reduced, "unit {} is reduced twice in one micro-step", unit_index);
  fill_missing(unit_index);
  unit.reduced = true;
  std::vector<Handle> bring_home;
  bool has_home = false;
  for (size_t index = 0; index < unit.flats.size(); ++index) {
    const Flat& flat = unit.flats[index];
    if (!flat.trainable) continue;
    has_home |= flat.in_host;
    if (flat.rule.every_micro_step || last_) {
      const std::vector<Handle> collectives = reduce_flat(unit_index, static_cast<int>(index));
      unit.reduces.insert(unit.reduces.end(), collectives.begin(), collectives.end());
      if (flat.in_host) bring_home.insert(bring_home.end(), collectives.begin(), collectives.end());
    } else if (flat.in_host) {
      const FlatLayout& layout = layout_.units[static_cast<size_t>(unit_index)].flats[index];
      homes_->send_home(unit_index, flat.kept_offset,
                        static_cast<size_t>(kept_gradient_numel(layout, options_)) * nbytes_of(flat.rule.kept));
    }
  }
  unit.slot = -1;  // its reduces own the slot from here on
  if (has_home) homes_->leave(unit_index, std::move(bring_home));
}

// Zeroes what no deposit will write: parameters without a gradient, and the gaps of a reused slot.
void Gradients::fill_missing(int unit_index) {
  Unit& unit = units_[static_cast<size_t>(unit_index)];
  const UnitLayout& layout = layout_.units[static_cast<size_t>(unit_index)];
  for (size_t index = 0; index < unit.flats.size(); ++index) {
    const Flat& flat = unit.flats[index];
    if (!flat.trainable) continue;
    const bool in_slot = collects_in_slot(flat);
    if (!in_slot && micro_step_ > 0) continue;
    const size_t element = nbytes_of(in_slot ? flat.rule.wire : flat.rule.kept);
    std::byte* base = in_slot ? slot_of(unit_index) + flat.slot_offset : work_place(unit_index, flat);
    const auto zero = [&](int64_t offset, int64_t numel) {
      if (numel == 0) return;
      queue_.zero(base + static_cast<size_t>(offset) * element, static_cast<size_t>(numel) * element);
    };
    for (const Piece& piece : layout.flats[index].pieces) {
      if (!unit.params[static_cast<size_t>(piece.param)].seen) zero(piece.offset, piece.numel);
    }
    for (const auto& [offset, numel] : gaps_of(layout.flats[index])) zero(offset, numel);
  }
}

void Gradients::say_fold(const Flat& flat, ReduceScatter& args) const {
  if (last_) {
    args.post = reduce_.factor;
    args.rounding = flat.rule.rounding;
  }
  if (!flat.rule.every_micro_step) return;  // each rank's own sum of leaves, once
  const int64_t group = options_.fold_group;
  const bool has_sum = from_mean_ || (group == 0 ? leaves_ > 0 : leaves_ >= group);
  if (has_sum) args.carry = after_mean_ ? 1 / reduce_.factor : 1;
  if (group == 0) return;
  args.groups = {.size = group,
                 .before = leaves_ % group,
                 .open = reinterpret_cast<float*>(open_groups_->data() + flat.open_offset),
                 .closes = last_};
  if (open_groups_->nbytes() == 0) args.groups.open = nullptr;
}

std::vector<Handle> Gradients::reduce_flat(int unit_index, int flat_index) {
  Unit& unit = units_[static_cast<size_t>(unit_index)];
  Flat& flat = unit.flats[static_cast<size_t>(flat_index)];
  const UnitLayout& unit_layout = layout_.units[static_cast<size_t>(unit_index)];
  const FlatLayout& layout = unit_layout.flats[static_cast<size_t>(flat_index)];

  std::byte* const kept = work_place(unit_index, flat);
  std::byte* whole = kept;
  if (flat.rule.through_slot) {
    whole = slot_of(unit_index) + flat.slot_offset;
    if (!flat.rule.every_micro_step) {  // accumulated where it is kept; the wire wants another dtype
      queue_.convert(kept, flat.rule.kept, whole, flat.rule.wire, layout.numel);
    }
  }
  const FlatRoutes routes = routes_of(layout, options_, cuts_.mesh());
  const size_t element = nbytes_of(flat.rule.kept);
  const Cut own = cuts_.own(layout);
  const size_t own_offset = offset_of(flat, layout, own.begin);
  std::byte* const shard = kept + own_offset;
  const std::shared_ptr<Slab>& keep = flat.in_host ? homes_->berth_slab(unit_index) : kept_;
  const bool shares = last_ && !routes.share.empty();
  ReduceScatter args;
  args.subject = {"reduce", unit_layout.name};
  args.whole = whole;
  args.shard = shard;
  args.shard_dtype = flat.rule.kept;
  say_fold(flat, args);
  args.piece_numel = reduce_.piece_numel;
  args.keep = keep;
  if (last_ || flat.in_host) {
    std::byte* home = rest_place(unit_index, flat) + own_offset;
    args.after = [this, &flat, shard, home, element, own, sums = last_, shares] {
      if (sums) {
        reduced_.sum_squares(shard, flat.rule.kept, own.numel(), own.begin / kRunNumel, flat.piece_sums);
      }
      if (flat.in_host && !shares) reduced_.copy(home, shard, static_cast<size_t>(own.numel()) * element);
    };
  }
  const Handle reduced = carry_reduce(routes.reduce, groups_, std::move(args),
                                      {sums_on_way_, &reduced_, errors_.feed_back(unit_index, flat_index)});
  if (flat.rule.through_slot) slots_[static_cast<size_t>(unit.slot)].reduces.push_back(reduced);
  pending_.push_back(reduced);
  if (!shares) return {reduced};

  const Cut shared = cuts_.over(layout, routes.share.back().yields);
  std::byte* const to = kept + offset_of(flat, layout, shared.begin);
  AllGather share{.subject = {"share the gradient", unit_layout.name}, .shard = shard, .whole = to, .keep = keep};
  if (flat.in_host) {
    std::byte* home = rest_place(unit_index, flat) + offset_of(flat, layout, shared.begin);
    share.after = [this, to, home, nbytes = static_cast<size_t>(shared.numel()) * element] {
      reduced_.copy(home, to, nbytes);
    };
  }
  pending_.push_back(carry_gather(routes.share, groups_, cuts_, layout, std::move(share)));
  return {reduced, pending_.back()};
}

void Gradients::wait() {
  for (const Handle& handle : pending_) handle.wait();
  pending_.clear();
  for (Slot& slot : slots_) {
    if (slot.reduces.empty()) continue;  // free, or a unit still collects in it
    slot.unit = -1;
    slot.reduces.clear();
  }
}

bool Gradients::is_reduced(int unit) const {
  const std::vector<Handle>& reduces = units_[static_cast<size_t>(unit)].reduces;
  return std::all_of(reduces.begin(), reduces.end(), [](const Handle& handle) { return handle.done(); });
}

std::function<void()> Gradients::awaiting(int unit) const {
  return [reduces = units_[static_cast<size_t>(unit)].reduces] {
    for (const Handle& handle : reduces) handle.wait_over();
  };
}

std::byte* Gradients::work_place(int unit, const Flat& flat) {
  return (flat.in_host ? homes_->berth(unit) : kept_->data()) + flat.kept_offset;
}

std::byte* Gradients::rest_place(int unit, const Flat& flat) const {
  return (flat.in_host ? homes_->home(unit) : kept_->data()) + flat.kept_offset;
}

size_t Gradients::offset_of(const Flat& flat, const FlatLayout& layout, int64_t element) const {
  const Cut kept = cuts_.gradients(layout);
  SHOAL_CHECK(element >= kept.begin && element <= kept.end, "the gradient of element {} is not kept", element);
  return static_cast<size_t>(element - kept.begin) * nbytes_of(flat.rule.kept);
}

double Gradients::held_seconds() {
  if (homes_) held_seconds_ += homes_->newly_held_seconds();
  return held_seconds_;
}

const std::byte* Gradients::shard(int unit, int flat) const {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)];
  const Cut updated = cuts_.states(layout);
  return at(unit, flat, (updated.is_part() ? updated : cuts_.own(layout)).begin);
}

const std::byte* Gradients::at(int unit, int index, int64_t element) const {
  const Flat& flat = units_[static_cast<size_t>(unit)].flats[static_cast<size_t>(index)];
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(index)];
  return rest_place(unit, flat) + offset_of(flat, layout, element);
}

const std::byte* Gradients::whole(int unit, int flat) const {
  const Flat& state = units_[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)];
  return state.rule.kept_whole ? rest_place(unit, state) : nullptr;
}

const GradientRule& Gradients::rule(int unit, int flat) const {
  return units_[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)].rule;
}

// Where these elements of a flat are kept.
std::byte* Gradients::kept_at(int unit, int flat, int64_t begin, int64_t numel) const {
  const Flat& state = units_[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)];
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)];
  const Cut kept = cuts_.gradients(layout);
  SHOAL_CHECK(begin >= kept.begin && begin + numel <= kept.end, "gradients {} to {} are not kept", begin,
              begin + numel);
  return rest_place(unit, state) + static_cast<size_t>(begin - kept.begin) * nbytes_of(state.rule.kept);
}

void Gradients::read(int unit, int flat, int64_t begin, int64_t numel, float* values) const {
  const DType dtype = rule(unit, flat).kept;
  std::vector<std::byte> bytes(static_cast<size_t>(numel) * nbytes_of(dtype));
  queue_.download(bytes.data(), kept_at(unit, flat, begin, numel), bytes.size());
  kernels::convert(bytes.data(), dtype, values, DType::f32, numel);
}

void Gradients::write(int unit, int flat, int64_t begin, int64_t numel, const float* values) {
  const DType dtype = rule(unit, flat).kept;
  std::vector<std::byte> bytes(static_cast<size_t>(numel) * nbytes_of(dtype));
  kernels::convert(values, DType::f32, bytes.data(), dtype, numel);
  queue_.upload(kept_at(unit, flat, begin, numel), bytes.data(), bytes.size());
  units_[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)].written = true;
}

const double* Gradients::sum_shard_squares() {
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    for (size_t index = 0; index < units_[unit].flats.size(); ++index) {
      Flat& flat = units_[unit].flats[index];
      if (!std::exchange(flat.written, false)) continue;
      const FlatLayout& layout = layout_.units[unit].flats[index];
      const Cut own = cuts_.own(layout);
      const size_t element = nbytes_of(flat.rule.kept);
      const std::byte* written = rest_place(static_cast<int>(unit), flat) + offset_of(flat, layout, own.begin);
      if (flat.in_host) {
        std::byte* here = homes_->free_berth();
        queue_.copy(here, written, static_cast<size_t>(own.numel()) * element);
        written = here;
      }
      queue_.sum_squares(written, flat.rule.kept, own.numel(), own.begin / kRunNumel, flat.piece_sums);
    }
  }
  queue_.sum_pieces(flat_sums_);
  return reinterpret_cast<const double*>(sums_->data());
}

std::byte* Gradients::slot_of(int unit_index) {
  Unit& unit = units_[static_cast<size_t>(unit_index)];
  if (unit.slot < 0) {
    unit.slot = pick_slot();
    Slot& slot = slots_[static_cast<size_t>(unit.slot)];
    slot.unit = unit_index;
    slot.reduces.clear();
    slot.turn = ++turn_;
  }
  return slots_[static_cast<size_t>(unit.slot)].slab->data();
}

// A free slot, else the one that was handed out first among those on their way (waited for), else a new one: all are
// held by units that still collect.
int Gradients::pick_slot() {
  int oldest = -1;
  for (int index = 0; index < static_cast<int>(slots_.size()); ++index) {
    const Slot& slot = slots_[static_cast<size_t>(index)];
    if (slot.unit < 0) return index;
    if (slot.reduces.empty()) continue;
    if (!waits_for_slots_ &&
        !std::all_of(slot.reduces.begin(), slot.reduces.end(), [](const Handle& handle) { return handle.done(); })) {
      continue;
    }
    if (oldest < 0 || slot.turn < slots_[static_cast<size_t>(oldest)].turn) oldest = index;
  }
  if (oldest >= 0) {
    for (const Handle& reduce : slots_[static_cast<size_t>(oldest)].reduces) reduce.wait();
    return oldest;
  }
  slots_.push_back({full(groups_.channel()).allocate(slot_nbytes_, ledger_, MemoryKind::reduce_slots), -1, {}, 0});
  return static_cast<int>(slots_.size()) - 1;
}

}  // namespace shoal
