// What `shoal compare` says, for people and for programs. See compare_runs.h.
#include <fmt/format.h>

#include "base/text.h"
#include "train/compare_runs.h"

namespace shoal::train {

namespace {

std::string or_none(const std::string& value) { return value.empty() ? "(none)" : value; }

std::string names_of(const std::vector<TwoValues>& pairs) {
  std::vector<std::string> names;
  for (const TwoValues& pair : pairs) names.push_back(pair.name);
  return join(names, ", ");
}

std::string counted(size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string verdict(const Comparison& found) {
  if (found.equal()) {
    return fmt::format("equal to the bit until step {}: {} in {}\n", found.steps.back(), join(found.columns, ", "),
                       counted(found.steps.size(), "step"));
  }
  if (const std::optional<int64_t> until = found.equal_until()) {
    return fmt::format("equal to the bit until step {}\n", *until);
  }
  return fmt::format("different from step {} on, the first that both have\n", found.steps.front());
}

std::string line_words(const LineDifference& difference) {
  const char* what = difference.file == "metrics.jsonl" ? "" : "evaluation after ";
  std::string text;
  for (const TwoValues& column : difference.columns) {
    text += fmt::format("{}{}step {}, {}: {} | {}\n", text.empty() ? "first difference: " : "                  ", what,
                        difference.step, column.name, column.first, column.second);
  }
  return text;
}

std::string state_words(const StateDifference& state) {
  return fmt::format(
      "first digests that differ: after step {}, unit {}, parameter {}: {} {}{}; {} of {} parameters\n", state.step,
      state.unit, state.parameter, names_of(state.states), state.states.size() == 1 ? "differs" : "differ",
      state.equal.empty() ? "" : fmt::format(", {} equal", join(state.equal, ", ")), state.differing, state.of);
}

json::Value steps_json(const std::vector<int64_t>& steps) {
  json::Array array;
  for (const int64_t step : steps) array.emplace_back(step);
  return array;
}

json::Value pairs_json(const std::vector<TwoValues>& pairs) {
  json::Array array;
  for (const TwoValues& pair : pairs) {
    json::Value item = json::Object{};
    item.set("name", pair.name);
    item.set("first", pair.first);
    item.set("second", pair.second);
    array.push_back(std::move(item));
  }
  return array;
}

}  // namespace

std::string to_text(const Comparison& found) {
  std::string text = verdict(found);
  if (found.difference) text += line_words(*found.difference);
  if (found.state) text += state_words(*found.state);
  if (!found.state && !found.digested.empty()) {
    text += fmt::format("digests of weights and moments are equal, the last after step {}\n", found.digested.back());
  }
  if (found.digested.empty()) {
    text += "no digests that both have: shoal train --digest-every N writes them, and names the parameter then\n";
  }
  if (!found.settings.empty()) {
    text += fmt::format("settings that differ, {} | {}:\n", found.first, found.second);
    for (const TwoValues& pair : found.settings) {
      text += fmt::format("  {}: {} | {}\n", pair.name, or_none(pair.first), or_none(pair.second));
    }
  }
  for (const std::string& note : found.notes) text += note + "\n";
  return text;
}

std::string to_json(const Comparison& found) {
  json::Value whole = json::Object{};
  whole.set("first", found.first);
  whole.set("second", found.second);
  whole.set("equal", found.equal());
  const std::optional<int64_t> until = found.equal_until();
  whole.set("equal_until", until ? json::Value(*until) : json::Value());
  whole.set("steps", steps_json(found.steps));
  whole.set("evaluated", steps_json(found.evaluated));
  whole.set("digested", steps_json(found.digested));
  whole.set("difference", json::Value());
  if (found.difference) {
    json::Value difference = json::Object{};
    difference.set("file", found.difference->file);
    difference.set("step", found.difference->step);
    difference.set("columns", pairs_json(found.difference->columns));
    whole.set("difference", std::move(difference));
  }
  whole.set("state", json::Value());
  if (found.state) {
    json::Value state = json::Object{};
    state.set("step", found.state->step);
    state.set("unit", found.state->unit);
    state.set("parameter", found.state->parameter);
    state.set("states", pairs_json(found.state->states));
    state.set("differing_parameters", found.state->differing);
    state.set("parameters", found.state->of);
    whole.set("state", std::move(state));
  }
  whole.set("settings", pairs_json(found.settings));
  json::Array notes;
  for (const std::string& note : found.notes) notes.emplace_back(note);
  whole.set("notes", std::move(notes));
  return json::write(whole, 2);
}

}  // namespace shoal::train
