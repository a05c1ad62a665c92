// See unit_gathers.h.
#include "engine/unit_gathers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "plan/memory.h"
#include "shard/param_slot.h"
#include "shoal/error.h"

namespace shoal {

namespace {

std::vector<int64_t> gathered_numels(const ModelLayout& layout, const Stage& stage) {
  std::vector<int64_t> numels;
  for (const UnitLayout& unit : layout.units) numels.push_back(gathered_numel(unit, stage));
  return numels;
}

// Members of one list, by their names: "experts.0" and "experts.1".
GatherLimits with_families(GatherLimits limits, const ModelLayout& layout) {
  std::map<std::string, int> families;
  for (const UnitLayout& unit : layout.units) {
    const size_t dot = unit.name.rfind('.');
    const std::string list = dot == std::string::npos ? unit.name : unit.name.substr(0, dot + 1);
    limits.family_of.push_back(families.emplace(list, static_cast<int>(families.size())).first->second);
  }
  return limits;
}

}  // namespace

UnitGathers::UnitGathers(const ModelLayout& layout, const GatherOptions& options, Weights& weights, Group& channel,
                         GatherEvents events)
    : layout_(layout),
      overlap_(options.overlap),
      weights_(weights),
      channel_(channel),
      events_(std::move(events)),
      schedule_(gathered_numels(layout, options.stage), with_families(options.limits, layout)) {}

void UnitGathers::begin(Phase phase) {
  weights_.begin_pass(phase != Phase::evaluate);
  carry_out(schedule_.begin(phase));
}

void UnitGathers::enter(const std::vector<int>& units) {
  for (const int unit : units) weights_.check_unchanged(unit);
  for (const int unit : units) {
    if (schedule_.must_agree_on(unit)) agree_on_next(unit);
    carry_out(schedule_.enter(unit));
  }
  or_lose([&] { weights_.expect(schedule_.upcoming(weights_.reads_ahead())); });
  for (const int unit : units) {
    events_.needed(unit);
    weights_.finish_gather(unit);
  }
}

void UnitGathers::exit(const std::vector<int>& units) {
  for (const int unit : units) carry_out(schedule_.exit(unit));
}

void UnitGathers::pass_by(int unit) {
  if (schedule_.has_passed(unit)) return;
  if (schedule_.must_agree_on(unit)) agree_on_next(unit);
  carry_out(schedule_.pass_by(unit));
}

// The end of a phase is agreed on too, while there is no order.
void UnitGathers::close_phase() {
  if (schedule_.must_agree_on_end()) agree_on_next(kNoUnit);
}

void UnitGathers::finish() { carry_out(schedule_.finish()); }

// In a first pass: takes part in what other ranks gather until this rank's wish is the one that all gather next.
void UnitGathers::agree_on_next(int wished_unit) {
  while (true) {
    std::vector<int> wishes(static_cast<size_t>(channel_.size()));
    channel_
        .all_gather({.subject = {"agree on the next unit", "first pass"},
                     .shard = &wished_unit,
                     .whole = wishes.data(),
                     .shard_nbytes = sizeof(int),
                     .keep = nullptr})
        .wait();
    if (std::any_of(wishes.begin(), wishes.end(), [&](int wish) { return wish != wished_unit; })) {
      events_.ranks_differ();
    }
    const int chosen = schedule_.choose(wishes);
    if (chosen == wished_unit) return;
    if (schedule_.is_live(chosen)) {
      throw Error("unit " + layout_.units[chosen].name,
                  "is in use on this rank while others enter it in another place. Make every rank use units in the "
                  "same order; a rank may leave units out.");
    }
    carry_out(schedule_.take_part(chosen));
  }
}

void UnitGathers::agree_on_order(Phase phase) {
  bool& agreed = phase == Phase::evaluate ? evaluation_order_agreed_ : orders_agreed_;
  if (agreed) return;
  merge_orders(phase);
  agreed = phase != Phase::forward;  // backward's comes after it
}

// What no rank used at its place in the order is dropped from it.
void UnitGathers::merge_orders(Phase phase) {
  const std::vector<uint8_t>& mine = schedule_.used(phase);
  if (mine.empty()) return;
  const auto ranks = static_cast<size_t>(channel_.size());
  std::vector<uint8_t> all(mine.size() * ranks);
  channel_
      .all_gather({.subject = {"agree on the order of units", fmt::format("{} entries", mine.size())},
                   .shard = mine.data(),
                   .whole = all.data(),
                   .shard_nbytes = mine.size(),
                   .keep = nullptr})
      .wait();
  const auto inversion = phase == Phase::backward ? std::nullopt : find_inversion(schedule_.order(phase), all);
  if (inversion) {
    const auto name_of = [&](int unit) { return layout_.units[unit].name; };
    throw Error("unit " + name_of(inversion->unit),
                fmt::format("rank {} uses it before {} and rank {} after it. Make every rank use units in the same "
                            "order; a rank may leave units out.",
                            inversion->rank_before, name_of(inversion->other_unit), inversion->rank_after));
  }
  std::vector<uint8_t> used_by_any(mine.size(), 0);
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t entry = 0; entry < mine.size(); ++entry) used_by_any[entry] |= all[rank * mine.size() + entry];
  }
  schedule_.prune(phase, used_by_any);
}

void UnitGathers::carry_out(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    if (action.verb == Action::Verb::gather) {
      if (weights_.gather_reads(action.unit)) events_.needed(action.unit);
      or_lose([&] { weights_.gather(action.unit); });
      if (!overlap_) weights_.finish_gather(action.unit);
    } else {
      const std::string* written = weights_.written_in_vain(action.unit);
      weights_.release(action.unit);
      events_.released(action.unit);
      if (written == nullptr) continue;
      events_.lost(fmt::format("{} was written in place during a pass, and the values are lost", *written));
      throw Error(
          "parameter " + *written,
          "was written in place while a pass had it gathered: the values would be lost, since each rank keeps a "
          "shard only. Write it between steps in a gather that says who writes (Engine::with_gathered; in Python "
          "shoal.gathered(params, written_by=0)), or use zero_optimization.stage 2 or less without offload_param.");
    }
  }
}

void UnitGathers::or_lose(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& error) {
    events_.lost(fmt::format("an earlier pass could not gather its weights: {}", error.what()));
    throw;
  }
}

}  // namespace shoal
