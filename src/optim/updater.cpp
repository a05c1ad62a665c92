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
      stage_(stage_of(config)),
      kept_(kept),
      memory_(kept.memory()),
      queue_(queue),
      shards_(place_shards(layout, shard_options(config))),
      piece_numel_(fetched_piece_numel(config.shoal.offload_chunk_size)),
      updates_ahead_(shoal::updates_ahead(config, queue.device() >= 0)),
      optimizer_(config.optimizer),
      gradient_options_(gradient_options(config)),
      ledger_(ledger) {
  if (queue_.device() >= 0) {
    const size_t slot_nbytes =
        fetched_slot_nbytes(layout_, stage_, shards_, updated_by_host_alone(layout_, config), piece_numel_);
    if (slot_nbytes > 0) fetched_ = std::make_unique<FetchedWeights>(queue_, slot_nbytes, ledger);
    begins_by_unit_ = !shards_on_disk(shards_).empty();
    runs_ahead_ = fetched_ && !begins_by_unit_ ? 1 : 0;
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

void Updater::meet_over(Group& channel) {
  if (!optimizer_row(optimizer_.kind).by_parameter) return;
  for (int chunk = 0; chunk < static_cast<int>(memory_.chunks().size()); ++chunk) {
    SHOAL_CHECK(!is_updated_by_host(chunk) && memory_.is_resident(chunk) && !fetched_,
                "states or weights of {} are not on the device", optimizer_row(optimizer_.kind).name);
  }
  lamb_ = std::make_unique<LambPasses>(layout_, stage_, groups_, channel, queue_, ledger_);
}

bool Updater::is_updated_by_host(int chunk) const {
  return &kept_.queue_of(chunk) != &queue_ && !memory_.is_streamed(chunk);
}

bool Updater::has_weights_in_host(int index) const {
  const StateChunk& chunk = memory_.chunks()[static_cast<size_t>(index)];
  const bool off_device = shards_[static_cast<size_t>(chunk.unit)].tier != Tier::device;
  return queue_.device() < 0 || (off_device && is_gathered(kept_.flat_of(index), stage_));
}

void Updater::grow_ring(size_t nbytes) {
  if (memory_.grow_ring(nbytes)) forget_work();  // it holds addresses
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

bool Updater::can_share() const { return memory_.streamed_nbytes() > memory_.ring_nbytes(); }

UpdateRates Updater::measure_rates() {
  const FlatLayout& flat = kept_.flat_of(streamed_chunks().front());
  MeasuredUpdate update{.dtype = flat.dtype,
                        .grad_dtype = gradient_rule(flat, gradient_options_).kept,
                        .optimizer = optimizer_,
                        .moment_dtype = kept_.moment_dtype(),
                        .narrow_masters = kept_.narrow_masters()};
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
    work.host_nbytes += grad_nbytes(chunk);
    (has_weights_in_host(chunk) ? work.state_nbytes : work.host_nbytes) += weight_nbytes(chunk);  // whose way it is
  }
  std::vector<int> shared;
  int64_t shared_numel = 0;
  for (const size_t at : spread_over(numels, host_share(work, rates))) {
    shared.push_back(streamed[at]);
    shared_numel += numels[at];
  }
  if (shared.empty()) return 0;
  forget_work();            // whatever becomes of this, it is listed anew
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
  if (host_updates_) held_seconds_ += host_updates_->newly_held_seconds();
  if (fetched_) held_seconds_ += fetched_->newly_held_seconds();
  return memory_.streamed().held_seconds + held_seconds_;
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

void Updater::begin_step(const StepConstants& constants, Weights& weights, const Gradients& gradients) {
  if (work_.empty()) list_work(weights, gradients);
  if (fetched_) fetched_->begin_step();
  if (host_updates_ && !begins_by_unit_)
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
  if (lamb_) {
    if (!lamb_->knows(unit)) lamb_->list(unit, list_runs(unit, weights, gradients));
    lamb_->update(unit, constants.placed);
    if (changes) weights.store(unit);
    return;
  }
  SHOAL_CHECK(!optimizer_row(optimizer_.kind).by_parameter, "ranks do not know where to meet");
  UnitWork& work = work_[static_cast<size_t>(unit)];
  if (work.launches.empty()) {
    work.launches = list_launches(unit, weights, gradients);
    for (const Launch& launch : work.launches) work.last_piece = std::max(work.last_piece, launch.piece);
  }
  if (host_updates_ && begins_by_unit_) host_updates_->begin(work.first_part, work.last_part, constants.decided);
  work.home = work.last_piece < 0;
  launch(work, constants.placed);
  for (int part = work.first_part; part < work.last_part; ++part) host_updates_->finish(part);
  if (!work.home && weights.is_on_disk(unit)) {
    fetched_->wait(work.last_piece);
    work.home = true;
  }
  if (changes) weights.store(unit);
}

void Updater::launch(const UnitWork& work, const PlacedSteps& placed) {
  for (size_t index = 0; index < work.launches.size(); ++index) {
    const Launch& launch = work.launches[index];
    const bool first = index == 0 || work.launches[index - 1].chunk != launch.chunk;
    const bool last = index + 1 == work.launches.size() || work.launches[index + 1].chunk != launch.chunk;
    if (launch.chunk >= 0 && first) memory_.begin_use(launch.chunk);
    if (launch.piece >= 0) fetched_->begin_use(launch.piece, work.last_piece + 1);
    queue_.update(*launch.list, placed);
    if (launch.piece >= 0) fetched_->end_use(launch.piece);
    if (launch.chunk >= 0 && last) memory_.end_use(launch.chunk);
  }
}

// Pieces go home in their order.
void Updater::need(int unit) {
  if (!fetched_ || work_.empty()) return;
  bool held = false;
  for (; unit >= 0; --unit) {
    UnitWork& work = work_[static_cast<size_t>(unit)];
    if (!work.home && !std::exchange(held, true)) fetched_->hold_queue(work.last_piece);
    work.home = true;
  }
}

void Updater::forget_work() {
  need(static_cast<int>(layout_.units.size()) - 1);
  work_.clear();
  if (lamb_) lamb_->forget();
}

std::vector<int> Updater::updated_from(int unit, int count) const {
  const int units = static_cast<int>(layout_.units.size());
  std::vector<int> next;
  for (int turn = 0; turn < std::min(count, units); ++turn) next.push_back((unit + turn) % units);
  return next;
}

void Updater::list_work(Weights& weights, const Gradients& gradients) {
  work_ = std::vector<UnitWork>(layout_.units.size());
  if (fetched_) fetched_->clear();
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
    const StateChunk& all = memory_.chunks()[static_cast<size_t>(chunk)];
    list_segments(chunk, all.begin, all.end, {at.states, at.weight, at.grad, grad_dtype}, segments, groups);
    return kept_.host_queue()->make_update_list(std::move(segments), std::move(groups));
  });
}

// One launch for all that is at hand, one for each chunk of states that must be brought, and one for each piece of
// weights.
std::vector<Updater::Launch> Updater::list_launches(int unit, Weights& weights, const Gradients& gradients) {
  std::vector<Launch> launches(1);
  std::vector<kernels::Segment> at_hand;
  std::vector<int> groups_at_hand;
  for (const int index : kept_.chunks_of(unit)) {
    if (is_updated_by_host(index)) continue;
    const StateChunk& chunk = memory_.chunks()[static_cast<size_t>(index)];
    const bool resident = memory_.is_resident(index);
    const bool fetched = queue_.device() >= 0 && has_weights_in_host(index);
    const Elements elements = elements_of(index, weights, gradients);
    if (resident && !fetched) {
      list_segments(index, chunk.begin, chunk.end, elements, at_hand, groups_at_hand);
      continue;
    }
    const size_t element = nbytes_of(kept_.flat_of(index).dtype);
    const int64_t most = fetched ? piece_numel_ : chunk.numel();
    for (int64_t begin = chunk.begin; begin < chunk.end; begin += most) {
      const int64_t end = std::min(begin + most, chunk.end), at = begin - chunk.begin;
      Launch launch{.chunk = resident ? -1 : index, .piece = -1, .list = nullptr};
      Elements of_piece = elements;
      of_piece.grad += static_cast<size_t>(at) * nbytes_of(elements.grad_dtype);
      if (fetched) {
        launch.piece = fetched_->add(advance(elements.weight, at, element), static_cast<size_t>(end - begin) * element);
        of_piece.weight = fetched_->address(launch.piece);
      }
      std::vector<kernels::Segment> segments;
      std::vector<int> groups;
      list_segments(index, begin, end, of_piece, segments, groups);
      launch.list = queue_.make_update_list(std::move(segments), std::move(groups));
      launches.push_back(std::move(launch));
    }
  }
  launches[0].list = queue_.make_update_list(std::move(at_hand), std::move(groups_at_hand));
  return launches;
}

std::vector<LambPasses::Run> Updater::list_runs(int unit, Weights& weights, const Gradients& gradients) const {
  std::vector<LambPasses::Run> runs;
  for (const int index : kept_.chunks_of(unit)) {
    const StateChunk& chunk = memory_.chunks()[static_cast<size_t>(index)];
    std::vector<kernels::Segment> segments;
    std::vector<int> groups;
    list_segments(index, chunk.begin, chunk.end, elements_of(index, weights, gradients), segments, groups);
    const std::vector<ParamRun> of_params = runs_in(kept_.flat_of(index), chunk.begin, chunk.end);
    for (size_t i = 0; i < segments.size(); ++i) {
      runs.push_back({segments[i], groups[i], of_params[i].param, of_params[i].param_offset});
    }
  }
  return runs;
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
  const bool sharded = weights.is_sharded(chunk.unit, chunk.flat);
  const int64_t at = sharded ? chunk.begin - weights.cuts().weights(layout).begin : chunk.begin;
  std::byte* weight = sharded ? weights.shard(chunk.unit, chunk.flat) : weights.whole(chunk.unit, chunk.flat);
  return {memory_.address(index), advance(weight, at, nbytes_of(layout.dtype)),
          gradients.at(chunk.unit, chunk.flat, chunk.begin), gradients.rule(chunk.unit, chunk.flat).kept};
}

// Each parameter that has elements there.
void Updater::list_segments(int index, int64_t begin, int64_t end, const Elements& elements,
                            std::vector<kernels::Segment>& segments, std::vector<int>& groups) const {
  const StateChunk& chunk = memory_.chunks()[static_cast<size_t>(index)];
  const FlatLayout& layout = kept_.flat_of(index);
  for (const ParamRun& run_of_param : runs_in(layout, begin, end)) {
    const int64_t element = run_of_param.flat_offset;
    const int64_t at = element - begin;
    kernels::Segment segment;
    segment.numel = run_of_param.numel;
    segment.weight = advance(elements.weight, at, nbytes_of(layout.dtype));
    segment.weight_dtype = layout.dtype;
    segment.master_kind = kernels::master_of(layout.dtype, kept_.narrow_masters());
    if (kernels::master_nbytes(segment.master_kind) > 0) {
      segment.master = elements.states + kept_.master_offset(index, element);
    }
    segment.grad = elements.grad + static_cast<size_t>(at) * nbytes_of(elements.grad_dtype);
    segment.grad_dtype = elements.grad_dtype;
    const auto moment = [&](int which) { return elements.states + kept_.moment_offset(which, index, element); };
    segment.state_dtype = kept_.moment_dtype();
    if (kept_.moments() > 0) segment.first = moment(0);
    if (kept_.moments() > 1) segment.second = moment(1);
    segments.push_back(segment);
    groups.push_back(groups_[static_cast<size_t>(chunk.unit)][static_cast<size_t>(run_of_param.param)]);
  }
}

}  // namespace shoal
