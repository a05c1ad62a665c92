// See updater.h.
#include "optim/updater.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "device/host_queue.h"
#include "kernels/convert.h"
#include "kernels/segment.h"
#include "optim/update_rates.h"
#include "plan/from_config.h"

namespace shoal {

namespace {

std::byte* advance(void* pointer, int64_t numel, size_t element) {
  return static_cast<std::byte*>(pointer) + static_cast<size_t>(numel) * element;
}

const std::byte* weight_to_read(int unit, int flat, const Weights& weights) {
  if (!weights.is_sharded(unit, flat)) return weights.whole(unit, flat);
  weights.fetch(unit);
  return weights.shard(unit, flat);
}

std::byte* weight_to_change(int unit, int flat, Weights& weights) {
  if (!weights.is_sharded(unit, flat)) return weights.whole(unit, flat);
  weights.change(unit);
  return weights.shard(unit, flat);
}

StateTiers tiers_of(const Config& config, const Queue& queue) {
  return {.offload = config.zero.offload_optimizer,
          .aio = config.aio,
          .verify = config.shoal.verify_offload,
          .ring_nbytes = queue.device() >= 0 ? state_ring_nbytes(config) : 0};
}

Updater::Range common(Updater::Range a, Updater::Range b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

}  // namespace

Updater::Updater(const ModelLayout& layout, const std::vector<UnitSpec>& specs, const Config& config, int rank,
                 Queue& queue, const std::shared_ptr<Ledger>& ledger)
    : layout_(layout),
      stage_(config.zero.stage),
      rank_(rank),
      moments_(moments_of(config.optimizer)),
      queue_(queue),
      optimizer_(config.optimizer),
      gradient_options_(gradient_options(config)),
      ledger_(ledger),
      states_(cut_states(layout, chunk_options(config, rank)), tiers_of(config, queue), queue, ledger) {
  const auto is_off_device = [](const StateChunk& chunk) { return chunk.tier != Tier::device; };
  if (queue_.device() >= 0 && std::any_of(states_.chunks().begin(), states_.chunks().end(), is_off_device)) {
    host_ = make_host_queue([this](int64_t numel, const auto& work) { queue_.on_host(numel, work); });
    host_updates_ = std::make_unique<HostUpdates>(queue_, *host_, states_, ledger);
    std::vector<int> by_host;
    for (int chunk = 0; chunk < static_cast<int>(states_.chunks().size()); ++chunk) {
      if (is_updated_by_host(chunk)) by_host.push_back(chunk);
    }
    reserve_for(by_host);
  }
  if (queue_.device() >= 0 && config.zero.offload_param.tier != Tier::device) {
    size_t largest = 0;
    for (const UnitLayout& unit : layout_.units) largest = std::max(largest, fetched_weight_nbytes(unit, stage_));
    fetched_ = queue_.allocate(largest, ledger, MemoryKind::state_ring);
  }
  for (size_t unit = 0; unit < layout_.units.size(); ++unit) {
    units_.emplace_back(layout_.units[unit].flats.size());
    std::vector<int>& groups = groups_.emplace_back();
    for (const ParamSpec& param : specs[unit].params) groups.push_back(param.group);
  }
  for (int index = 0; index < static_cast<int>(states_.chunks().size()); ++index) {
    const StateChunk& chunk = states_.chunks()[static_cast<size_t>(index)];
    Flat& flat = units_[static_cast<size_t>(chunk.unit)][static_cast<size_t>(chunk.flat)];
    if (flat.begin == flat.end) flat = {index, index, chunk.begin, chunk.begin};
    flat.last_chunk = index + 1;
    flat.end = chunk.end;
  }
}

Queue& Updater::queue_of(int chunk) const {
  const bool off_device = states_.chunks()[static_cast<size_t>(chunk)].tier != Tier::device;
  return off_device && host_ ? *host_ : queue_;
}

bool Updater::is_updated_by_host(int chunk) const { return &queue_of(chunk) != &queue_ && !states_.is_streamed(chunk); }

void Updater::grow_ring(size_t nbytes) {
  if (states_.grow_ring(nbytes)) work_.clear();  // it holds addresses
}

std::vector<int> Updater::streamed_chunks() const {
  std::vector<int> streamed;
  for (int chunk = 0; chunk < static_cast<int>(states_.chunks().size()); ++chunk) {
    if (states_.is_streamed(chunk)) streamed.push_back(chunk);
  }
  return streamed;
}

const FlatLayout& Updater::flat_of(int index) const {
  const StateChunk& chunk = states_.chunks()[static_cast<size_t>(index)];
  return layout_.units[static_cast<size_t>(chunk.unit)].flats[static_cast<size_t>(chunk.flat)];
}

size_t Updater::weight_nbytes(int chunk) const {
  return static_cast<size_t>(states_.chunks()[static_cast<size_t>(chunk)].numel()) * nbytes_of(flat_of(chunk).dtype);
}

size_t Updater::grad_nbytes(int chunk) const {
  return static_cast<size_t>(states_.chunks()[static_cast<size_t>(chunk)].numel()) *
         nbytes_of(gradient_rule(flat_of(chunk), gradient_options_).kept);
}

void Updater::reserve_for(const std::vector<int>& chunks) {
  size_t weight = 0, grad = 0;
  for (const int chunk : chunks) {
    weight = std::max(weight, weight_nbytes(chunk));
    grad = std::max(grad, grad_nbytes(chunk));
  }
  host_updates_->reserve(weight, grad);
}

// Not weights that come to the device for their update: they come and go as whole flats.
bool Updater::can_share() const { return !fetched_ && states_.streamed_nbytes() > states_.ring_nbytes(); }

UpdateRates Updater::measure_rates() {
  const FlatLayout& flat = flat_of(streamed_chunks().front());
  MeasuredUpdate update{
      .dtype = flat.dtype, .grad_dtype = gradient_rule(flat, gradient_options_).kept, .optimizer = optimizer_};
  int64_t numel = 0;
  for (const int chunk : streamed_chunks()) numel += states_.chunks()[static_cast<size_t>(chunk)].numel();
  update.numel = std::min(update.numel, numel);
  return measure_update_rates(queue_, states_.empty_ring(), *host_, update, ledger_);
}

int64_t Updater::share_with_host(const UpdateRates& rates) {
  SplitWork work{.state_nbytes = states_.streamed_nbytes(), .ring_nbytes = states_.ring_nbytes()};
  const std::vector<int> streamed = streamed_chunks();
  std::vector<int64_t> numels;
  for (const int chunk : streamed) {
    const int64_t numel = states_.chunks()[static_cast<size_t>(chunk)].numel();
    numels.push_back(numel);
    work.numel += numel;
    work.host_nbytes += weight_nbytes(chunk) + grad_nbytes(chunk);
  }
  std::vector<int> shared;
  int64_t shared_numel = 0;
  for (const size_t at : spread_over(numels, host_share(work, rates))) {
    shared.push_back(streamed[at]);
    shared_numel += numels[at];
  }
  if (shared.empty()) return 0;
  work_.clear();        // whatever becomes of this, it is listed anew
  reserve_for(shared);  // before anything changes: it may not be had
  states_.leave_in_host(shared);
  return shared_numel;
}

int64_t Updater::host_updated_numel() const {
  int64_t numel = 0;
  for (int chunk = 0; chunk < static_cast<int>(states_.chunks().size()); ++chunk) {
    if (is_updated_by_host(chunk)) numel += states_.chunks()[static_cast<size_t>(chunk)].numel();
  }
  return numel;
}

double Updater::held_seconds() {
  if (host_updates_) host_held_seconds_ += host_updates_->newly_held_seconds();
  return states_.streamed().held_seconds + host_held_seconds_;
}

// What the host updates reads its own states ahead, in its own thread.
void Updater::read_ahead() {
  if (!host_updates_ || !host_updates_->in_round()) states_.read_ahead();
  states_.bring_ahead();
}

Updater::Range Updater::kept_range(int unit, int flat_index) const {
  const Flat& flat = units_[static_cast<size_t>(unit)][static_cast<size_t>(flat_index)];
  return {flat.begin, flat.end};
}

void Updater::for_chunks(int unit, int flat_index, Range range,
                         const std::function<void(int, int64_t, int64_t)>& use) const {
  const Flat& flat = units_[static_cast<size_t>(unit)][static_cast<size_t>(flat_index)];
  for (int index = flat.first_chunk; index < flat.last_chunk; ++index) {
    const StateChunk& chunk = states_.chunks()[static_cast<size_t>(index)];
    const Range part = common(range, {chunk.begin, chunk.end});
    if (part.begin < part.end) use(index, part.begin, part.end);
  }
}

size_t Updater::moment_offset(int which, int index, int64_t element) const {
  SHOAL_CHECK_LT(which, moments_);
  const StateChunk& chunk = states_.chunks()[static_cast<size_t>(index)];
  return (which == 0 ? chunk.first : chunk.second) + static_cast<size_t>(element - chunk.begin) * sizeof(float);
}

size_t Updater::master_offset(int index, int64_t element) const {
  const StateChunk& chunk = states_.chunks()[static_cast<size_t>(index)];
  return chunk.master + static_cast<size_t>(element - chunk.begin) * master_nbytes(flat_of(index).dtype);
}

void Updater::get_moment(int which, int unit, int flat, Range range, float* values) const {
  for_chunks(unit, flat, range, [&](int chunk, int64_t begin, int64_t end) {
    queue_of(chunk).download(values + (begin - range.begin), states_.look(chunk) + moment_offset(which, chunk, begin),
                             static_cast<size_t>(end - begin) * sizeof(float));
  });
}

void Updater::set_moment(int which, int unit, int flat, Range range, const float* values) {
  for_chunks(unit, flat, range, [&](int chunk, int64_t begin, int64_t end) {
    queue_of(chunk).upload(states_.change(chunk) + moment_offset(which, chunk, begin), values + (begin - range.begin),
                           static_cast<size_t>(end - begin) * sizeof(float));
  });
}

void Updater::set_values(int unit, int flat_index, Range range, const float* values, Weights& weights) {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat_index)];
  const bool split = layout.trainable && layout.dtype == DType::bf16;

  const Range kept_weights = weight_range(unit, flat_index, weights);
  const Range kept = common(range, kept_weights);
  if (kept.begin < kept.end) {
    std::byte* weight =
        advance(weight_to_change(unit, flat_index, weights), kept.begin - kept_weights.begin, nbytes_of(layout.dtype));
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

  if (!layout.trainable || layout.dtype == DType::f32) return;
  for_chunks(unit, flat_index, range, [&](int chunk, int64_t begin, int64_t end) {
    std::byte* master = states_.change(chunk) + master_offset(chunk, begin);
    const float* in = values + (begin - range.begin);
    const int64_t numel = end - begin;
    if (!split) {
      queue_of(chunk).upload(master, in, static_cast<size_t>(numel) * sizeof(float));
      return;
    }
    std::vector<uint16_t> remainders(static_cast<size_t>(numel));
    queue_.on_host(numel, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) remainders[static_cast<size_t>(i)] = kernels::split_remainder(in[i]);
    });
    queue_of(chunk).upload(master, remainders.data(), remainders.size() * sizeof(uint16_t));
  });
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
                  weight_to_read(unit, flat_index, weights) +
                      static_cast<size_t>(range.begin - kept.begin) * nbytes_of(layout.dtype),
                  weight.size());
  if (!layout.trainable || layout.dtype == DType::f32) {
    kernels::convert(weight.data(), layout.dtype, values, DType::f32, numel);
    return;
  }
  SHOAL_CHECK(flat.begin <= range.begin && range.end <= flat.end, "masters {} to {} are not kept", range.begin,
              range.end);
  std::vector<uint16_t> remainders(layout.dtype == DType::bf16 ? static_cast<size_t>(numel) : 0);
  for_chunks(unit, flat_index, range, [&](int chunk, int64_t begin, int64_t end) {
    const std::byte* master = states_.look(chunk) + master_offset(chunk, begin);
    const int64_t at = begin - range.begin;
    void* to = remainders.empty() ? static_cast<void*>(values + at) : remainders.data() + at;
    queue_of(chunk).download(to, master, static_cast<size_t>(end - begin) * master_nbytes(layout.dtype));
  });
  if (!remainders.empty()) kernels::join(weight.data(), remainders.data(), values, numel);
}

Updater::Range Updater::weight_range(int unit, int flat, const Weights& weights) const {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)];
  if (!weights.is_sharded(unit, flat)) return {0, layout.numel};
  return {rank_ * layout.shard_numel, (rank_ + 1) * layout.shard_numel};
}

void Updater::reset_param(int unit, int flat_index, const Piece& piece, const std::byte* whole, Weights& weights) {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat_index)];
  const size_t element = nbytes_of(layout.dtype);
  const auto part_of = [&](int64_t begin, int64_t end) {
    const int64_t first = std::max(begin, piece.offset);
    return std::pair(first, std::max(first, std::min(end, piece.offset + piece.numel)));
  };
  if (weights.is_sharded(unit, flat_index)) {
    const int64_t begin = rank_ * layout.shard_numel;
    const auto [first, last] = part_of(begin, begin + layout.shard_numel);
    if (first < last) {
      put_home(advance(weight_to_change(unit, flat_index, weights), first - begin, element),
               whole + static_cast<size_t>(first) * element, static_cast<size_t>(last - first) * element, weights);
    }
  }
  if (!layout.trainable || layout.dtype == DType::f32) return;
  for_chunks(unit, flat_index, {piece.offset, piece.offset + piece.numel}, [&](int chunk, int64_t first, int64_t last) {
    std::byte* master = states_.change(chunk) + master_offset(chunk, first);
    const std::byte* written = whole + static_cast<size_t>(first) * element;
    Queue& queue = queue_of(chunk);
    if (layout.dtype == DType::bf16) {
      queue.zero(master, static_cast<size_t>(last - first) * sizeof(uint16_t));
    } else if (&queue == &queue_) {
      queue.convert(written, layout.dtype, master, DType::f32, last - first);
    } else {
      std::vector<std::byte> there(static_cast<size_t>(last - first) * element);
      queue_.download(there.data(), written, there.size());
      queue.convert(there.data(), layout.dtype, master, DType::f32, last - first);
    }
  });
}

// Weights that come to the device for their update come unit by unit, and the host's part in them too.
void Updater::begin_step(const StepConstants& constants, Weights& weights, const Gradients& gradients) {
  if (work_.empty()) list_work(weights, gradients);
  if (host_updates_ && !fetched_) host_updates_->begin(0, host_updates_->parts(), constants.decided);
}

void Updater::abandon_step() {
  if (host_updates_) host_updates_->abandon();
}

void Updater::update(int unit, const StepConstants& constants, Weights& weights, const Gradients& gradients) {
  const bool changes_shards = fetched_weight_nbytes(layout_.units[static_cast<size_t>(unit)], stage_) > 0;
  if (changes_shards) {
    weights.expect(updated_from(unit, weights.reads_ahead()));
    weights.change(unit);
  }
  UnitWork& work = work_[static_cast<size_t>(unit)];
  if (work.launches.empty()) work.launches = list_launches(unit, weights, gradients);
  const std::vector<Fetched> fetched = fetched_of(unit, weights);
  for (const Fetched& flat : fetched) queue_.copy(fetched_->data() + flat.offset, flat.home, flat.nbytes);
  if (host_updates_ && fetched_) host_updates_->begin(work.first_part, work.last_part, constants.decided);
  for (const Launch& launch : work.launches) {
    if (launch.chunk >= 0) states_.begin_use(launch.chunk);
    queue_.update(*launch.list, constants.placed);
    if (launch.chunk >= 0) states_.end_use(launch.chunk);
  }
  for (int part = work.first_part; part < work.last_part; ++part) host_updates_->finish(part);
  for (const Fetched& flat : fetched) put_home(flat.home, fetched_->data() + flat.offset, flat.nbytes, weights);
  if (changes_shards) weights.store(unit);
}

// What the disk is given must be there; what stays in memory is only read by the queue's later work.
void Updater::put_home(std::byte* home, const std::byte* from, size_t nbytes, const Weights& weights) {
  if (weights.file() != nullptr) {
    queue_.download(home, from, nbytes);
  } else {
    queue_.copy(home, from, nbytes);
  }
}

std::vector<int> Updater::updated_from(int unit, int count) const {
  const int units = static_cast<int>(units_.size());
  std::vector<int> next;
  for (int turn = 0; turn < std::min(count, units); ++turn) next.push_back((unit + turn) % units);
  return next;
}

std::vector<Updater::Fetched> Updater::fetched_of(int unit, const Weights& weights) const {
  std::vector<Fetched> found;
  size_t offset = 0;
  const UnitLayout& layout = layout_.units[static_cast<size_t>(unit)];
  for (int flat = 0; flat < static_cast<int>(layout.flats.size()); ++flat) {
    const FlatLayout& flat_layout = layout.flats[static_cast<size_t>(flat)];
    if (!flat_layout.trainable || !weights.is_off_device(unit, flat)) continue;
    const size_t nbytes = static_cast<size_t>(flat_layout.shard_numel) * nbytes_of(flat_layout.dtype);
    found.push_back({weights.shard(unit, flat), offset, nbytes});
    offset += nbytes;
  }
  return found;
}

std::vector<int> Updater::chunks_of(int unit) const {
  std::vector<int> chunks;
  for (const Flat& flat : units_[static_cast<size_t>(unit)]) {
    for (int chunk = flat.first_chunk; chunk < flat.last_chunk; ++chunk) chunks.push_back(chunk);
  }
  return chunks;
}

void Updater::list_work(Weights& weights, const Gradients& gradients) {
  work_ = std::vector<UnitWork>(units_.size());
  if (!host_updates_) return;
  std::vector<HostUpdates::Part> parts;
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    UnitWork& work = work_[static_cast<size_t>(unit)];
    work.first_part = static_cast<int>(parts.size());
    for (const int chunk : chunks_of(unit)) {
      if (is_updated_by_host(chunk)) parts.push_back(part_of(chunk, weights, gradients));
    }
    work.last_part = static_cast<int>(parts.size());
  }
  host_updates_->set_parts(parts, [&](int part, std::byte* weight, std::byte* grad) {
    const int chunk = parts[static_cast<size_t>(part)].chunk;
    std::vector<kernels::Segment> segments;
    std::vector<int> groups;
    list_segments(chunk, {weight, grad, elements_of(chunk, weights, gradients).grad_dtype}, segments, groups);
    return host_->make_update_list(std::move(segments), std::move(groups));
  });
}

// One launch for all that is at hand, and one for each chunk that must be brought.
std::vector<Updater::Launch> Updater::list_launches(int unit, Weights& weights, const Gradients& gradients) const {
  std::vector<Launch> launches(1);
  std::vector<kernels::Segment> resident;
  std::vector<int> resident_groups;
  for (const int chunk : chunks_of(unit)) {
    if (is_updated_by_host(chunk)) continue;
    const Elements elements = elements_of(chunk, weights, gradients);
    if (states_.is_resident(chunk)) {
      list_segments(chunk, elements, resident, resident_groups);
    } else {
      std::vector<kernels::Segment> segments;
      std::vector<int> groups;
      list_segments(chunk, elements, segments, groups);
      launches.push_back({chunk, queue_.make_update_list(std::move(segments), std::move(groups))});
    }
  }
  launches[0].list = queue_.make_update_list(std::move(resident), std::move(resident_groups));
  return launches;
}

HostUpdates::Part Updater::part_of(int index, Weights& weights, const Gradients& gradients) const {
  const StateChunk& chunk = states_.chunks()[static_cast<size_t>(index)];
  const FlatLayout& layout = flat_of(index);
  const Elements elements = elements_of(index, weights, gradients);
  const auto numel = static_cast<size_t>(chunk.numel());
  return {.chunk = index,
          .weight = elements.weight,
          .weight_nbytes = numel * nbytes_of(layout.dtype),
          .grad = elements.grad,
          .grad_nbytes = numel * nbytes_of(elements.grad_dtype)};
}

Updater::Elements Updater::elements_of(int index, Weights& weights, const Gradients& gradients) const {
  const StateChunk& chunk = states_.chunks()[static_cast<size_t>(index)];
  const FlatLayout& layout = flat_of(index);
  const bool sharded = row_of(layout, stage_).shard_states;
  const int64_t at = chunk.begin - kept_range(chunk.unit, chunk.flat).begin;
  const DType grad_dtype = gradients.rule(chunk.unit, chunk.flat).kept;
  std::byte* weight = sharded ? weights.shard(chunk.unit, chunk.flat) : weights.whole(chunk.unit, chunk.flat);
  for (const Fetched& fetched : fetched_of(chunk.unit, weights)) {
    if (fetched.home == weight) weight = fetched_->data() + fetched.offset;
  }
  const std::byte* grad = sharded ? gradients.shard(chunk.unit, chunk.flat) : gradients.whole(chunk.unit, chunk.flat);
  return {advance(weight, at, nbytes_of(layout.dtype)), grad + static_cast<size_t>(at) * nbytes_of(grad_dtype),
          grad_dtype};
}

// Each parameter that has elements in the chunk.
void Updater::list_segments(int index, const Elements& elements, std::vector<kernels::Segment>& segments,
                            std::vector<int>& groups) const {
  const StateChunk& chunk = states_.chunks()[static_cast<size_t>(index)];
  const FlatLayout& layout = flat_of(index);
  std::byte* states = states_.address(index);
  for (const ParamRun& run_of_param : runs_in(layout, chunk.begin, chunk.end)) {
    const int64_t element = run_of_param.flat_offset;
    const int64_t at = element - chunk.begin;
    kernels::Segment segment;
    segment.numel = run_of_param.numel;
    segment.weight = advance(elements.weight, at, nbytes_of(layout.dtype));
    segment.weight_dtype = layout.dtype;
    segment.master_kind = kernels::master_of(layout.dtype);
    if (segment.master_kind != kernels::Master::weight) segment.master = states + master_offset(index, element);
    segment.grad = elements.grad + static_cast<size_t>(at) * nbytes_of(elements.grad_dtype);
    segment.grad_dtype = elements.grad_dtype;
    const auto moment = [&](int which) {
      return reinterpret_cast<float*>(states + moment_offset(which, index, element));
    };
    if (moments_ > 0) segment.first = moment(0);
    if (moments_ > 1) segment.second = moment(1);
    segments.push_back(segment);
    groups.push_back(groups_[static_cast<size_t>(chunk.unit)][static_cast<size_t>(run_of_param.param)]);
  }
}

}  // namespace shoal
