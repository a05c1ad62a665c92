// See updater.h.
#include "optim/updater.h"

#include <algorithm>
#include <utility>

#include "kernels/segment.h"
#include "optim/update_rates.h"
#include "plan/from_config.h"

namespace shoal {

namespace {

std::byte* advance(std::byte* pointer, int64_t numel, size_t element) {
  return pointer + static_cast<size_t>(numel) * element;
}

}  // namespace

Updater::Updater(const ModelLayout& layout, const std::vector<UnitSpec>& specs, const Config& config, KeptStates& kept,
                 Queue& queue, const std::shared_ptr<Ledger>& ledger)
    : layout_(layout),
      stage_(config.zero.stage),
      kept_(kept),
      memory_(kept.memory()),
      queue_(queue),
      shards_(config.zero.offload_param.tier),
      updates_ahead_(shoal::updates_ahead(config, queue.device() >= 0)),
      optimizer_(config.optimizer),
      gradient_options_(gradient_options(config)),
      ledger_(ledger) {
  if (queue_.device() >= 0) {
    host_flats_ = updated_by_host_alone(layout_, config);
    const size_t fetched = largest_fetched_nbytes(layout_, stage_, shards_, host_flats_);
    if (fetched > 0) fetched_ = queue_.allocate(fetched, ledger, MemoryKind::state_ring);
  }
  if (Queue* host = kept_.host_queue()) {
    host_updates_ = std::make_unique<HostUpdates>(queue_, *host, memory_, ledger);
    std::vector<int> by_host;
    for (int chunk = 0; chunk < static_cast<int>(memory_.chunks().size()); ++chunk) {
      if (is_updated_by_host(chunk)) by_host.push_back(chunk);
    }
    reserve_for(by_host, gradients_of_host(layout_, config));
    if (updates_ahead_) {
      memory_.make_spares(ledger);
      size_t weights_ahead = 0;
      for (const int chunk : by_host) weights_ahead += memory_.spare(chunk) != nullptr ? weight_nbytes(chunk) : 0;
      host_updates_->reserve_ahead(weights_ahead);
    }
  }
  for (const UnitSpec& unit : specs) {
    std::vector<int>& groups = groups_.emplace_back();
    for (const ParamSpec& param : unit.params) groups.push_back(param.group);
  }
}

bool Updater::is_updated_by_host(int chunk) const {
  return &kept_.queue_of(chunk) != &queue_ && !memory_.is_streamed(chunk);
}

bool Updater::has_weights_in_host(int index) const {
  if (queue_.device() < 0) return true;
  if (shards_ == Tier::device) return false;
  const StateChunk& chunk = memory_.chunks()[static_cast<size_t>(index)];
  const FlatLayout& flat = kept_.flat_of(index);
  const bool by_host = contains(host_flats_, static_cast<size_t>(chunk.unit), static_cast<size_t>(chunk.flat));
  return row_of(flat, stage_).shard_weights && !is_fetched(flat, stage_, shards_, by_host);
}

void Updater::grow_ring(size_t nbytes) {
  if (memory_.grow_ring(nbytes)) work_.clear();  // it holds addresses
}

std::vector<int> Updater::streamed_chunks() const {
  std::vector<int> streamed;
  for (int chunk = 0; chunk < static_cast<int>(memory_.chunks().size()); ++chunk) {
    if (memory_.is_streamed(chunk)) streamed.push_back(chunk);
  }
  return streamed;
}

size_t Updater::weight_nbytes(int chunk) const {
  return static_cast<size_t>(memory_.chunks()[static_cast<size_t>(chunk)].numel()) *
         nbytes_of(kept_.flat_of(chunk).dtype);
}

size_t Updater::grad_nbytes(int chunk) const {
  return static_cast<size_t>(memory_.chunks()[static_cast<size_t>(chunk)].numel()) *
         nbytes_of(gradient_rule(kept_.flat_of(chunk), gradient_options_).kept);
}

void Updater::reserve_for(const std::vector<int>& chunks, const HostFlats& gradients_there) {
  size_t weight = 0, grad = 0;
  for (const int index : chunks) {
    const StateChunk& chunk = memory_.chunks()[static_cast<size_t>(index)];
    if (!has_weights_in_host(index)) weight = std::max(weight, weight_nbytes(index));
    if (queue_.device() < 0) continue;
    if (contains(gradients_there, static_cast<size_t>(chunk.unit), static_cast<size_t>(chunk.flat))) continue;
    grad = std::max(grad, grad_nbytes(index));
  }
  host_updates_->reserve(weight, grad);
}

// Not weights that come to the device for their update: they come and go as whole flats.
bool Updater::can_share() const { return !fetched_ && memory_.streamed_nbytes() > memory_.ring_nbytes(); }

UpdateRates Updater::measure_rates() {
  const FlatLayout& flat = kept_.flat_of(streamed_chunks().front());
  MeasuredUpdate update{
      .dtype = flat.dtype, .grad_dtype = gradient_rule(flat, gradient_options_).kept, .optimizer = optimizer_};
  int64_t numel = 0;
  for (const int chunk : streamed_chunks()) numel += memory_.chunks()[static_cast<size_t>(chunk)].numel();
  update.numel = std::min(update.numel, numel);
  return measure_update_rates(queue_, memory_.empty_ring(), *kept_.host_queue(), update, ledger_);
}

int64_t Updater::share_with_host(const UpdateRates& rates) {
  SplitWork work{.state_nbytes = memory_.streamed_nbytes(), .ring_nbytes = memory_.ring_nbytes()};
  const std::vector<int> streamed = streamed_chunks();
  std::vector<int64_t> numels;
  for (const int chunk : streamed) {
    const int64_t numel = memory_.chunks()[static_cast<size_t>(chunk)].numel();
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
  work_.clear();            // whatever becomes of this, it is listed anew
  reserve_for(shared, {});  // before anything changes: it may not be had
  memory_.leave_in_host(shared);
  return shared_numel;
}

int64_t Updater::host_updated_numel() const {
  int64_t numel = 0;
  for (int chunk = 0; chunk < static_cast<int>(memory_.chunks().size()); ++chunk) {
    if (is_updated_by_host(chunk)) numel += memory_.chunks()[static_cast<size_t>(chunk)].numel();
  }
  return numel;
}

double Updater::held_seconds() {
  if (host_updates_) host_held_seconds_ += host_updates_->newly_held_seconds();
  return memory_.streamed().held_seconds + host_held_seconds_;
}

// What the host updates reads its own states ahead, in its own thread.
void Updater::read_ahead() {
  if (!host_updates_ || !host_updates_->in_round()) memory_.read_ahead();
  memory_.bring_ahead();
}

void Updater::update_ahead(int unit, const HostUpdates::Decision& assumed, Weights& weights,
                           const Gradients& gradients) {
  if (work_.empty()) list_work(weights, gradients);
  const UnitWork& work = work_[static_cast<size_t>(unit)];
  const std::function<void()> await = gradients.awaiting(unit);
  for (int part = work.first_part; part < work.last_part; ++part) host_updates_->update_ahead(part, assumed, await);
}

void Updater::forget_ahead() {
  if (updates_ahead_) host_updates_->forget_ahead();
}

// Weights that come to the device for their update come unit by unit, and the host's part in them too.
void Updater::begin_step(const StepConstants& constants, Weights& weights, const Gradients& gradients) {
  if (work_.empty()) list_work(weights, gradients);
  if (host_updates_ && !fetched_)
    host_updates_->begin(0, host_updates_->parts(), constants.decided, constants.is_decided);
}

void Updater::abandon_step() {
  if (host_updates_) host_updates_->abandon();
  forget_ahead();
}

void Updater::update(int unit, const StepConstants& constants, Weights& weights, const Gradients& gradients) {
  const bool changes = changes_shards(layout_.units[static_cast<size_t>(unit)], stage_);
  if (changes) {
    weights.expect(updated_from(unit, weights.reads_ahead()));
    weights.change(unit);
  }
  UnitWork& work = work_[static_cast<size_t>(unit)];
  if (work.launches.empty()) work.launches = list_launches(unit, weights, gradients);
  const std::vector<Fetched> fetched = fetched_of(unit, weights);
  for (const Fetched& flat : fetched) queue_.copy(fetched_->data() + flat.offset, flat.home, flat.nbytes);
  if (host_updates_ && fetched_) host_updates_->begin(work.first_part, work.last_part, constants.decided);
  for (const Launch& launch : work.launches) {
    if (launch.chunk >= 0) memory_.begin_use(launch.chunk);
    queue_.update(*launch.list, constants.placed);
    if (launch.chunk >= 0) memory_.end_use(launch.chunk);
  }
  for (int part = work.first_part; part < work.last_part; ++part) host_updates_->finish(part);
  for (const Fetched& flat : fetched) weights.put(queue_, flat.home, fetched_->data() + flat.offset, flat.nbytes);
  if (changes) weights.store(unit);
}

std::vector<int> Updater::updated_from(int unit, int count) const {
  const int units = static_cast<int>(layout_.units.size());
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
    const bool by_host = contains(host_flats_, static_cast<size_t>(unit), static_cast<size_t>(flat));
    if (!weights.is_off_device(unit, flat) || !is_fetched(flat_layout, stage_, shards_, by_host)) continue;
    const size_t nbytes = static_cast<size_t>(flat_layout.shard_numel) * nbytes_of(flat_layout.dtype);
    found.push_back({weights.shard(unit, flat), offset, nbytes});
    offset += nbytes;
  }
  return found;
}

void Updater::list_work(Weights& weights, const Gradients& gradients) {
  work_ = std::vector<UnitWork>(layout_.units.size());
  if (!host_updates_) return;
  std::vector<HostUpdates::Part> parts;
  for (int unit = 0; unit < static_cast<int>(layout_.units.size()); ++unit) {
    UnitWork& work = work_[static_cast<size_t>(unit)];
    work.first_part = static_cast<int>(parts.size());
    for (const int chunk : kept_.chunks_of(unit)) {
      if (is_updated_by_host(chunk)) parts.push_back(part_of(chunk, weights, gradients));
    }
    work.last_part = static_cast<int>(parts.size());
  }
  host_updates_->set_parts(parts, [&](int part, const HostUpdates::Elements& at) {
    const int chunk = parts[static_cast<size_t>(part)].chunk;
    std::vector<kernels::Segment> segments;
    std::vector<int> groups;
    const DType grad_dtype = elements_of(chunk, weights, gradients).grad_dtype;
    list_segments(chunk, {at.states, at.weight, at.grad, grad_dtype}, segments, groups);
    return kept_.host_queue()->make_update_list(std::move(segments), std::move(groups));
  });
}

// One launch for all that is at hand, and one for each chunk that must be brought.
std::vector<Updater::Launch> Updater::list_launches(int unit, Weights& weights, const Gradients& gradients) const {
  std::vector<Launch> launches(1);
  std::vector<kernels::Segment> resident;
  std::vector<int> resident_groups;
  for (const int chunk : kept_.chunks_of(unit)) {
    if (is_updated_by_host(chunk)) continue;
    const Elements elements = elements_of(chunk, weights, gradients);
    if (memory_.is_resident(chunk)) {
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
  const StateChunk& chunk = memory_.chunks()[static_cast<size_t>(index)];
  const FlatLayout& layout = kept_.flat_of(index);
  const Elements elements = elements_of(index, weights, gradients);
  const auto numel = static_cast<size_t>(chunk.numel());
  return {.chunk = index,
          .weight = {elements.weight, numel * nbytes_of(layout.dtype), has_weights_in_host(index)},
          .grad = {elements.grad, numel * nbytes_of(elements.grad_dtype),
                   queue_.device() < 0 || gradients.is_in_host(chunk.unit, chunk.flat)}};
}

Updater::Elements Updater::elements_of(int index, Weights& weights, const Gradients& gradients) const {
  const StateChunk& chunk = memory_.chunks()[static_cast<size_t>(index)];
  const FlatLayout& layout = kept_.flat_of(index);
  const bool sharded = row_of(layout, stage_).shard_states;
  const int64_t at = chunk.begin - kept_.kept_range(chunk.unit, chunk.flat).begin;
  const DType grad_dtype = gradients.rule(chunk.unit, chunk.flat).kept;
  std::byte* weight = sharded ? weights.shard(chunk.unit, chunk.flat) : weights.whole(chunk.unit, chunk.flat);
  for (const Fetched& fetched : fetched_of(chunk.unit, weights)) {
    if (fetched.home == weight) weight = fetched_->data() + fetched.offset;
  }
  const std::byte* grad = sharded ? gradients.shard(chunk.unit, chunk.flat) : gradients.whole(chunk.unit, chunk.flat);
  return {memory_.address(index), advance(weight, at, nbytes_of(layout.dtype)),
          grad + static_cast<size_t>(at) * nbytes_of(grad_dtype), grad_dtype};
}

// Each parameter that has elements in the chunk.
void Updater::list_segments(int index, const Elements& elements, std::vector<kernels::Segment>& segments,
                            std::vector<int>& groups) const {
  const StateChunk& chunk = memory_.chunks()[static_cast<size_t>(index)];
  const FlatLayout& layout = kept_.flat_of(index);
  for (const ParamRun& run_of_param : runs_in(layout, chunk.begin, chunk.end)) {
    const int64_t element = run_of_param.flat_offset;
    const int64_t at = element - chunk.begin;
    kernels::Segment segment;
    segment.numel = run_of_param.numel;
    segment.weight = advance(elements.weight, at, nbytes_of(layout.dtype));
    segment.weight_dtype = layout.dtype;
    segment.master_kind = kernels::master_of(layout.dtype);
    if (segment.master_kind != kernels::Master::weight) {
      segment.master = elements.states + kept_.master_offset(index, element);
    }
    segment.grad = elements.grad + static_cast<size_t>(at) * nbytes_of(elements.grad_dtype);
    segment.grad_dtype = elements.grad_dtype;
    const auto moment = [&](int which) {
      return reinterpret_cast<float*>(elements.states + kept_.moment_offset(which, index, element));
    };
    if (kept_.moments() > 0) segment.first = moment(0);
    if (kept_.moments() > 1) segment.second = moment(1);
    segments.push_back(segment);
    groups.push_back(groups_[static_cast<size_t>(chunk.unit)][static_cast<size_t>(run_of_param.param)]);
  }
}

}  // namespace shoal
