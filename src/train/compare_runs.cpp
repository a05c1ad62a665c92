// See compare_runs.h. What is said of a comparison is in comparison_text.cpp.
#include "train/compare_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

std::vector<int64_t> common_steps(const Lines& first, const Lines& second) {
  std::vector<int64_t> steps;
  for (const auto& [step, line] : first) {
    if (second.contains(step)) steps.push_back(step);
  }
  return steps;
}

// Not of a machine's time, and no place.
bool is_compared(const std::string& column) {
  if (column == "slow_rank") return false;
  for (const char* end : {"_ms", "_per_s", "_bytes"}) {
    if (column.ends_with(end)) return false;
  }
  return column != "step";
}

// `columns`: those that both runs had in their first common step, of which one that one of them lacks differs. Others
// are compared where both have them.
std::vector<TwoValues> differing_columns(const json::Value& first, const json::Value& second,
                                         const std::vector<std::string>& columns) {
  const auto text_of = [](const json::Value* value) { return value == nullptr ? "none" : json::write(*value); };
  std::vector<std::string> names = columns;
  for (const json::Member& member : first.as_object()) {
    const bool known = std::find(names.begin(), names.end(), member.key) != names.end();
    if (!known && is_compared(member.key) && second.find(member.key) != nullptr) names.push_back(member.key);
  }
  std::vector<TwoValues> found;
  for (const std::string& name : names) {
    const std::string own = text_of(first.find(name)), others = text_of(second.find(name));
    if (own != others) found.push_back({name, own, others});
  }
  return found;
}

std::optional<LineDifference> first_difference(const std::string& file, const std::vector<int64_t>& steps,
                                               const Lines& first, const Lines& second,
                                               const std::vector<std::string>& columns) {
  for (const int64_t step : steps) {
    std::vector<TwoValues> differing = differing_columns(first.at(step), second.at(step), columns);
    if (!differing.empty()) return LineDifference{file, step, std::move(differing)};
  }
  return std::nullopt;
}

// The parameters of a line of digests, in order.
struct DigestedParam {
  std::string unit, name;
  std::vector<std::pair<std::string, std::string>> states;
};

std::vector<DigestedParam> params_of(const json::Value& line, const std::string& path, int64_t step) {
  const auto refuse = [&] {
    throw Error(path, fmt::format("the digests of step {} are not as shoal train writes them. Take the digests.jsonl "
                                  "of this run out of its folder, or make them again.",
                                  step));
  };
  std::vector<DigestedParam> params;
  const json::Value* units = line.find("units");
  if (units == nullptr || !units->is_object()) refuse();
  for (const json::Member& unit : units->as_object()) {
    if (!unit.value.is_object()) refuse();
    for (const json::Member& param : unit.value.as_object()) {
      if (!param.value.is_object()) refuse();
      DigestedParam own{unit.key, param.key, {}};
      for (const json::Member& state : param.value.as_object())
        own.states.emplace_back(state.key, json::write(state.value));
      params.push_back(std::move(own));
    }
  }
  return params;
}

std::string state_of(const DigestedParam& param, const std::string& name) {
  for (const auto& [state, digest] : param.states) {
    if (state == name) return digest;
  }
  return "";
}

// States of both, each once.
std::vector<std::string> state_names(const DigestedParam& first, const DigestedParam& second) {
  std::vector<std::string> names;
  for (const DigestedParam* param : {&first, &second}) {
    for (const auto& [state, digest] : param->states) {
      if (std::find(names.begin(), names.end(), state) == names.end()) names.push_back(state);
    }
  }
  return names;
}

std::optional<StateDifference> state_difference(int64_t step, const std::vector<DigestedParam>& first,
                                                const std::vector<DigestedParam>& second) {
  std::map<std::string, DigestedParam> others;
  for (const DigestedParam& param : second) others.emplace(param.name, param);
  StateDifference found;
  found.step = step;
  const auto see = [&](const DigestedParam& own, const DigestedParam& other) {
    ++found.of;
    std::vector<TwoValues> differing;
    std::vector<std::string> equal;
    for (const std::string& name : state_names(own, other)) {
      const std::string a = state_of(own, name), b = state_of(other, name);
      if (a == b) equal.push_back(name);
      if (a != b) differing.push_back({name, a, b});
    }
    if (differing.empty()) return;
    if (++found.differing > 1) return;
    found.unit = own.unit.empty() ? other.unit : own.unit;
    found.parameter = own.name.empty() ? other.name : own.name;
    found.states = std::move(differing);
    found.equal = std::move(equal);
  };
  for (const DigestedParam& param : first) {
    const auto other = others.find(param.name);
    see(param, other == others.end() ? DigestedParam{} : other->second);
    if (other != others.end()) others.erase(other);
  }
  for (const DigestedParam& param : second) {
    if (others.contains(param.name)) see({}, param);
  }
  if (found.differing == 0) return std::nullopt;
  return found;
}

std::vector<TwoValues> differing_settings(const RunRecord& first, const RunRecord& second) {
  if (first.settings.empty() || second.settings.empty()) return {};
  std::vector<TwoValues> found;
  std::map<std::string, std::string> others(second.settings.begin(), second.settings.end());
  for (const auto& [name, value] : first.settings) {
    const auto other = others.find(name);
    const std::string theirs = other == others.end() ? "" : other->second;
    if (value != theirs) found.push_back({name, value, theirs});
    if (other != others.end()) others.erase(other);
  }
  for (const auto& [name, value] : second.settings) {
    if (others.contains(name)) found.push_back({name, "", value});
  }
  return found;
}

std::string span_text(int64_t first, int64_t last) {
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
}

// Steps between its first and its last that a run has no line of.
void note_gaps(const RunRecord& run, std::vector<std::string>& notes) {
  int64_t before = run.metrics.begin()->first;
  for (const auto& [step, line] : run.metrics) {
    if (step > before + 1) notes.push_back(fmt::format("{}: {} missing", run.path, span_text(before + 1, step - 1)));
    before = step;
  }
}

void note_steps(const RunRecord& first, const RunRecord& second, size_t common, std::vector<std::string>& notes) {
  for (const RunRecord* run : {&first, &second}) note_gaps(*run, notes);
  if (common == first.metrics.size() && common == second.metrics.size()) return;
  const auto has = [](const RunRecord& run) {
    return fmt::format("{} has {}", run.path, span_text(run.metrics.begin()->first, run.metrics.rbegin()->first));
  };
  notes.push_back(fmt::format("{}, {}: compared are the {} that both have", has(first), has(second), common));
}

// Columns of the first step that both have; a digest stands in some steps only.
void note_columns(const json::Value& first, const json::Value& second, Comparison& found) {
  const auto only_in = [&](const json::Value& own, const json::Value& other, const std::string& path) {
    for (const json::Member& member : own.as_object()) {
      if (!is_compared(member.key) || member.key == "digest" || other.find(member.key) != nullptr) continue;
      found.notes.push_back(fmt::format("only {} has the column {}: not compared", path, member.key));
    }
  };
  for (const json::Member& member : first.as_object()) {
    const bool compared = is_compared(member.key) && member.key != "digest" && second.find(member.key) != nullptr;
    if (compared) found.columns.push_back(member.key);
  }
  only_in(first, second, found.first);
  only_in(second, first, found.second);
}

}  // namespace

std::optional<int64_t> Comparison::equal_until() const {
  if (equal()) return steps.back();
  // An evaluation comes after its step, a digest too; but the column of a digest is its step's.
  const bool after = difference && difference->file != "metrics.jsonl";
  const int64_t at = difference ? difference->step : state->step;
  std::optional<int64_t> last;
  for (const int64_t step : steps) {
    if (step < at || (after && step == at)) last = step;
  }
  return last;
}

Comparison compare_runs(const RunRecord& first, const RunRecord& second) {
  Comparison found;
  found.first = first.path;
  found.second = second.path;
  found.notes = first.notes;
  found.notes.insert(found.notes.end(), second.notes.begin(), second.notes.end());
  found.steps = common_steps(first.metrics, second.metrics);
  if (found.steps.empty()) {
    throw Error("compare",
                fmt::format("{} has {}, {} has {}: they have no step in common. Give runs that overlap.", first.path,
                            span_text(first.metrics.begin()->first, first.metrics.rbegin()->first), second.path,
                            span_text(second.metrics.begin()->first, second.metrics.rbegin()->first)));
  }
  note_steps(first, second, found.steps.size(), found.notes);
  note_columns(first.metrics.at(found.steps[0]), second.metrics.at(found.steps[0]), found);
  if (found.columns.empty()) {
    throw Error("compare", fmt::format("{} and {} have no column in common that a comparison looks at, such as loss. "
                                       "Give runs of shoal train.",
                                       first.path, second.path));
  }
  found.settings = differing_settings(first, second);
  found.evaluated = common_steps(first.evaluations, second.evaluations);
  found.digested = common_steps(first.digests, second.digests);
  found.difference = first_difference("metrics.jsonl", found.steps, first.metrics, second.metrics, found.columns);
  const auto evaluation = first_difference("eval.jsonl", found.evaluated, first.evaluations, second.evaluations, {});
  if (evaluation && (!found.difference || evaluation->step < found.difference->step)) found.difference = evaluation;
  for (const int64_t step : found.digested) {
    found.state = state_difference(step, params_of(first.digests.at(step), first.path, step),
                                   params_of(second.digests.at(step), second.path, step));
    if (found.state) break;
  }
  return found;
}

}  // namespace shoal::train
