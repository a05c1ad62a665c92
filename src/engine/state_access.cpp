// See state_access.h.
#include "engine/state_access.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace shoal {

std::string_view name_of(StateKind kind) {
  switch (kind) {
    case StateKind::weight: return "weight";
    case StateKind::first_moment: return "first_moment";
    case StateKind::second_moment: return "second_moment";
  }
  return "weight";
}

namespace {

int moment_index(StateKind kind) { return kind == StateKind::first_moment ? 0 : 1; }

}  // namespace

StateAccess::StateAccess(const Blueprint& blueprint, const ModelLayout& layout, KeptStates& states, Weights& weights)
    : layout_(layout), states_(states), weights_(weights) {
  std::map<std::pair<int, int>, size_t> index_of;  // by unit and parameter
  for (int unit = 0; unit < static_cast<int>(blueprint.specs.size()); ++unit) {
    const UnitSpec& spec = blueprint.specs[static_cast<size_t>(unit)];
    for (int param = 0; param < static_cast<int>(spec.params.size()); ++param) {
      const ParamSpec& own = spec.params[static_cast<size_t>(param)];
      index_of[{unit, param}] = params_.size();
      params_.push_back({.name = own.name,
                         .aliases = {},
                         .shape = own.shape,
                         .unit = spec.name,
                         .dtype = own.dtype,
                         .trainable = own.trainable,
                         .sharded = false});
      places_.push_back({});
    }
    const std::vector<FlatLayout>& flats = layout_.units[static_cast<size_t>(unit)].flats;
    for (int flat = 0; flat < static_cast<int>(flats.size()); ++flat) {
      for (const Piece& piece : flats[static_cast<size_t>(flat)].pieces) {
        const size_t index = index_of.at({unit, piece.param});
        places_[index] = {unit, flat, piece.offset, piece.numel};
        params_[index].sharded = weights_.is_sharded(unit, flat);
      }
    }
  }
  for (const auto& [name, address] : blueprint.by_name) {
    ParamInfo& info = params_[index_of.at({address.unit, address.param})];
    if (info.name != name) info.aliases.push_back(name);
  }
}

// Every rank owns its shard of each flat, whatever the stage. Of a trained flat it keeps what KeptStates says (the
// weights beyond that are published to it), and the weights it holds of a frozen one.
KeptStates::Range StateAccess::range_of(const Place& place, Share share, StateKind kind) const {
  const FlatLayout& flat = layout_.units[static_cast<size_t>(place.unit)].flats[static_cast<size_t>(place.flat)];
  if (kind != StateKind::weight && (!flat.trainable || states_.moments() < (kind == StateKind::first_moment ? 1 : 2))) {
    return {};
  }
  const Cut own = weights_.cuts().own(flat);
  if (share == Share::owned) return {own.begin, own.end};
  if (flat.trainable) return states_.kept_range(place.unit, place.flat);
  const Cut held = weights_.cuts().weights(flat);
  return {held.begin, held.end};
}

std::vector<StateRun> StateAccess::runs(Share share) const {
  std::vector<StateRun> found;
  for (size_t param = 0; param < places_.size(); ++param) {
    const Place& place = places_[param];
    for (const StateKind kind : {StateKind::weight, StateKind::first_moment, StateKind::second_moment}) {
      const KeptStates::Range range = range_of(place, share, kind);
      const int64_t begin = std::max(range.begin, place.offset);
      const int64_t end = std::min(range.end, place.offset + place.numel);
      if (begin < end) found.push_back({static_cast<int>(param), kind, begin - place.offset, end - begin});
    }
  }
  return found;
}

std::vector<StateRun> StateAccess::owned() const { return runs(Share::owned); }
std::vector<StateRun> StateAccess::kept() const { return runs(Share::kept); }

StateAccess::Place StateAccess::place_of(const StateRun& part) const {
  SHOAL_CHECK(part.param >= 0 && part.param < static_cast<int>(places_.size()), "there is no parameter {}", part.param);
  const Place& place = places_[static_cast<size_t>(part.param)];
  SHOAL_CHECK(part.begin >= 0 && part.numel >= 0 && part.begin + part.numel <= place.numel,
              "{} has {} elements, not {} + {}", params_[static_cast<size_t>(part.param)].name, place.numel, part.begin,
              part.numel);
  return place;
}

void StateAccess::check_unchanged(const StateRun& part) const { weights_.check_unchanged(place_of(part).unit); }

void StateAccess::read(const StateRun& part, float* values) const {
  const Place place = place_of(part);
  const int64_t begin = place.offset + part.begin;
  if (part.kind == StateKind::weight) {
    states_.get_values(place.unit, place.flat, {begin, begin + part.numel}, values, weights_);
  } else {
    states_.get_moment(moment_index(part.kind), place.unit, place.flat, {begin, begin + part.numel}, values);
  }
}

void StateAccess::write(const StateRun& part, const float* values) {
  const Place place = place_of(part);
  const int64_t begin = place.offset + part.begin;
  if (part.kind == StateKind::weight) {
    states_.set_values(place.unit, place.flat, {begin, begin + part.numel}, values, weights_);
  } else {
    states_.set_moment(moment_index(part.kind), place.unit, place.flat, {begin, begin + part.numel}, values);
  }
}

StateAccess::Place StateAccess::trained_place_of(const StateRun& part) const {
  const Place place = place_of(part);
  const FlatLayout& flat = layout_.units[static_cast<size_t>(place.unit)].flats[static_cast<size_t>(place.flat)];
  SHOAL_CHECK(flat.trainable, "{} is frozen", params_[static_cast<size_t>(part.param)].name);
  return place;
}

void StateAccess::read_gradient(const StateRun& part, const Gradients& gradients, float* values) const {
  const Place place = trained_place_of(part);
  gradients.read(place.unit, place.flat, place.offset + part.begin, part.numel, values);
}

void StateAccess::write_gradient(const StateRun& part, const float* values, Gradients& gradients) const {
  const Place place = trained_place_of(part);
  gradients.write(place.unit, place.flat, place.offset + part.begin, part.numel, values);
}

}  // namespace shoal
