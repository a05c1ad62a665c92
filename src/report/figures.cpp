// See figures.h.
#include "report/figures.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "config/table.h"
#include "report/reduce.h"

namespace shoal::report {

namespace {

constexpr size_t kMostMarks = 300;  // of a kind

json::Value finite(double number) { return std::isfinite(number) ? json::Value(number) : json::Value(); }

double number_of(const json::Value& object, const std::string& key, double other = 0) {
  const json::Value* value = object.is_object() ? object.find(key) : nullptr;
  return value != nullptr && value->is_number() ? value->as_number() : other;
}

std::string text_of(const json::Value& object, const std::string& key) {
  const json::Value* value = object.is_object() ? object.find(key) : nullptr;
  return value != nullptr && value->is_text() ? value->as_text() : "";
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::isfinite(value) ? value : 0;
  return sum;
}

double sum_of_events(const RunFolder& run, const std::string& event) {
  double sum = 0;
  for (const json::Value& line : run.events) {
    if (text_of(line, "event") == event) sum += number_of(line, "ms");
  }
  return sum;
}

// Indexes of the steps whose time is near the median. The first step of all starts everything, and counts alone only.
std::vector<size_t> median_steps(const std::vector<double>& ms) {
  std::vector<size_t> at;
  for (size_t i = ms.size() > 1 ? 1 : 0; i < ms.size(); ++i) {
    if (std::isfinite(ms[i])) at.push_back(i);
  }
  std::sort(at.begin(), at.end(), [&](size_t a, size_t b) { return ms[a] < ms[b]; });
  const size_t begin = at.size() * 2 / 5, end = std::max(at.size() * 3 / 5, begin + 1);
  if (at.empty()) return at;
  return {at.begin() + static_cast<std::ptrdiff_t>(begin), at.begin() + static_cast<std::ptrdiff_t>(end)};
}

double mean_at(const std::vector<double>& values, const std::vector<size_t>& at) {
  double sum = 0;
  for (const size_t i : at) sum += i < values.size() && std::isfinite(values[i]) ? values[i] : 0;
  return at.empty() ? 0 : sum / static_cast<double>(at.size());
}

}  // namespace

json::Value summary_of(const RunFolder& run) {
  const Columns& steps = run.steps;
  json::Value summary = json::Object{};
  summary.set("steps", static_cast<int64_t>(steps.steps.size()));
  summary.set("first_step", steps.steps.empty() ? json::Value() : json::Value(steps.steps.front()));
  summary.set("last_step", steps.steps.empty() ? json::Value() : json::Value(steps.steps.back()));
  const auto last = [&](const char* name) {
    const std::vector<double>& column = steps.of(name);
    return column.empty() ? json::Value() : finite(column.back());
  };
  summary.set("last_loss", last("loss"));
  summary.set("tokens", last("tokens"));
  summary.set("skipped", static_cast<int64_t>(sum_of(steps.of("skipped"))));
  json::Value best;
  double best_loss = INFINITY;
  const std::vector<double>& losses = run.evaluations.of("loss");
  for (size_t i = 0; i < losses.size(); ++i) {
    if (!(losses[i] < best_loss)) continue;
    best_loss = losses[i];
    best = json::Object{};
    best.set("loss", losses[i]);
    best.set("step", run.evaluations.steps[i]);
  }
  summary.set("best_evaluation", std::move(best));
  const std::vector<size_t> middle = median_steps(steps.of("step_ms"));
  const double ms = mean_at(steps.of("step_ms"), middle), tokens_per_s = mean_at(steps.of("tokens_per_s"), middle);
  const double per_token = number_of(run.about, "flops_per_token"), peak = number_of(run.about, "peak_flops");
  const double ranks = number_of(run.about, "ranks", 1);
  const double carried = mean_at(steps.of("carried_ms"), middle), waited = mean_at(steps.of("wait_comm_ms"), middle);
  summary.set("median_step_ms", ms > 0 ? json::Value(ms) : json::Value());
  summary.set("tokens_per_s", tokens_per_s > 0 ? json::Value(tokens_per_s) : json::Value());
  summary.set("flops_per_s_of_a_rank",
              per_token > 0 && tokens_per_s > 0 ? json::Value(per_token * tokens_per_s / ranks) : json::Value());
  summary.set("mfu",
              peak > 0 && tokens_per_s > 0 ? json::Value(per_token * tokens_per_s / ranks / peak) : json::Value());
  // Of the time that collectives were under way, what nobody stood still for.
  summary.set("overlap", carried > 0 ? json::Value(std::clamp(1 - waited / carried, 0.0, 1.0)) : json::Value());
  summary.set("wait_share", ms > 0 ? json::Value(waited / ms) : json::Value());
  summary.set("steps_seconds", sum_of(steps.of("step_ms")) * 1e-3);
  summary.set("save_seconds", sum_of_events(run, "save") * 1e-3);
  summary.set("evaluation_seconds", sum_of(run.evaluations.of("eval_ms")) * 1e-3);
  return summary;
}

json::Value step_parts(const RunFolder& run) {
  json::Array parts;
  const std::vector<double>& all = run.steps.of("step_ms");
  const std::vector<size_t> middle = median_steps(all);
  const double whole = mean_at(all, middle);
  if (!(whole > 0)) return parts;
  const auto of = [&](const char* name) { return mean_at(run.steps.of(name), middle); };
  std::vector<std::pair<const char*, double>> found = {{"data", of("data_ms")},
                                                       {"wait: weights", of("wait_weights_ms")},
                                                       {"wait: gradients", of("wait_gradients_ms")},
                                                       {"wait: losses", of("wait_losses_ms")},
                                                       {"wait: host tier", of("wait_host_ms")},
                                                       {"wait: disk tier", of("wait_disk_ms")}};
  // A file of an older Shoal does not say what was waited for.
  const bool by_cause = !run.steps.of("wait_weights_ms").empty();
  if (!by_cause) found.insert(found.begin() + 1, {"wait: ranks", of("wait_comm_ms")});
  double rest = whole;
  for (const auto& [name, ms] : found) rest -= ms;
  const auto add = [&](const char* name, double ms) {
    json::Value part = json::Object{};
    part.set("name", name);
    part.set("ms", ms);
    parts.push_back(std::move(part));
  };
  add("compute", std::max(rest, 0.0));
  for (const auto& [name, ms] : found) {
    if (ms > 0) add(name, ms);
  }
  // What comes between steps, spread over them.
  const auto steps = static_cast<double>(all.size());
  const double saves = sum_of_events(run, "save"), evaluations = sum_of(run.evaluations.of("eval_ms"));
  if (saves > 0) add("save", saves / steps);
  if (evaluations > 0) add("evaluate", evaluations / steps);
  return parts;
}

json::Value ranks_of(const RunFolder& run) {
  // By rank and column, weighted by steps; only lines of as many ranks as the last: a resumed run may have others.
  size_t count = 0;
  if (!run.ranks.empty()) {
    const json::Value* last = run.ranks.back().find("wait_comm_ms");
    if (last != nullptr && last->is_array()) count = last->as_array().size();
  }
  json::Array ranks;
  if (count == 0) return ranks;
  const std::vector<const char*> columns = {"wait_comm_ms", "wait_host_ms", "wait_disk_ms", "data_ms"};
  std::map<std::string, std::vector<double>> sums;
  double steps = 0;
  int64_t from = -1, to = 0;
  for (const json::Value& line : run.ranks) {
    const double weight = number_of(line, "steps", 1);
    std::map<std::string, std::vector<double>> values;
    for (const char* column : columns) {
      const json::Value* array = line.find(column);
      if (array == nullptr || !array->is_array() || array->as_array().size() != count) break;
      for (const json::Value& value : array->as_array()) {
        values[column].push_back(value.is_number() ? value.as_number() : 0);
      }
    }
    if (values.size() != columns.size() || !(weight > 0)) continue;
    steps += weight;
    to = line.find("step")->as_integer();
    if (from < 0) from = to - static_cast<int64_t>(weight) + 1;
    for (const char* column : columns) {
      sums[column].resize(count);
      for (size_t rank = 0; rank < count; ++rank) sums[column][rank] += values[column][rank] * weight;
    }
  }
  if (!(steps > 0)) return ranks;
  double ms = 0, timed = 0;  // of the same steps
  const std::vector<double>& all = run.steps.of("step_ms");
  for (size_t i = 0; i < all.size(); ++i) {
    if (run.steps.steps[i] < from || run.steps.steps[i] > to || !std::isfinite(all[i])) continue;
    ms += all[i];
    ++timed;
  }
  for (size_t rank = 0; rank < count; ++rank) {
    json::Value line = json::Object{};
    line.set("rank", static_cast<int64_t>(rank));
    double waits = 0;
    for (const char* column : columns) {
      const double mean = sums[column][rank] / steps;
      line.set(column, mean);
      if (column != columns.back()) waits += mean;
    }
    line.set("own_ms", timed > 0 ? json::Value(std::max(0.0, ms / timed - waits)) : json::Value());
    ranks.push_back(std::move(line));
  }
  return ranks;
}

json::Value memory_of(const RunFolder& run) {
  for (auto line = run.events.rbegin(); line != run.events.rend(); ++line) {
    if (text_of(*line, "event") == "memory") return *line;
  }
  return {};
}

json::Value config_keys(const RunFolder& run) {
  json::Array rows;
  if (run.config.is_null()) return rows;
  const auto value_at = [&](const std::string& path) {
    const json::Value* at = &run.config;
    for (size_t begin = 0; at != nullptr && begin <= path.size();) {
      const size_t end = std::min(path.find('.', begin), path.size());
      at = at->is_object() ? at->find(path.substr(begin, end - begin)) : nullptr;
      begin = end + 1;
    }
    return at;
  };
  const auto type_of = [&](const config::Section& section) {
    const json::Value* type = section.type_key.empty() ? nullptr : value_at(section.type_key);
    return type != nullptr && type->is_text() ? type->as_text() : std::string();
  };
  for (const config::Section& section : config::table().sections()) {
    const std::string type = type_of(section);
    for (const config::Key& key : section.keys) {
      const json::Value* value = value_at(key.path);
      const json::Value* by_type = key.fallback_by_type.empty() ? nullptr : key.fallback_of(type);
      const bool has_default = !key.required && (key.fallback_by_type.empty() || by_type != nullptr);
      const json::Value& fallback = by_type != nullptr ? *by_type : key.fallback;
      json::Value row = json::Object{};
      row.set("key", key.path);
      row.set("value", value != nullptr ? json::write(*value) : "");
      row.set("default", has_default ? json::write(fallback) : "");
      row.set("changed", value != nullptr && (!has_default || !(*value == fallback)));
      row.set("fate", key.status == config::Status::carried_out ? "carried out"
                      : key.status == config::Status::no_effect ? "no effect"
                                                                : "refused");
      row.set("why", key.reason);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

json::Value marks_of(const RunFolder& run) {
  json::Value all = json::Object{};
  json::Array marks;
  int64_t left_out = 0;
  const auto add = [&](const char* kind, size_t at) -> json::Value& {
    json::Value mark = json::Object{};
    mark.set("kind", kind);
    mark.set("step", run.steps.steps[at]);
    marks.push_back(std::move(mark));
    return marks.back();
  };
  size_t count = 0;
  const auto counted = [&](const char* kind, size_t at) {
    if (++count > kMostMarks) return static_cast<void>(++left_out);
    add(kind, at);
  };
  const std::vector<double>& skipped = run.steps.of("skipped");
  for (size_t i = 0; i < skipped.size(); ++i) {
    if (skipped[i] == 1) counted("skipped", i);
  }
  count = 0;
  const std::vector<double>& losses = run.steps.of("loss");
  for (size_t i = 0; i < losses.size(); ++i) {
    if (!std::isfinite(losses[i])) counted("loss is not finite", i);
  }
  for (const char* column : {"loss", "grad_norm", "step_ms"}) {
    size_t found = 0;
    const std::vector<Outlier> far = outliers(run.steps.of(column), kMostMarks, found);
    left_out += static_cast<int64_t>(found - far.size());
    for (const Outlier& each : far) {
      json::Value& mark = add("outlier", each.at);
      mark.set("column", column);
      mark.set("value", each.value);
      mark.set("usual", each.usual);
    }
  }
  all.set("marks", std::move(marks));
  all.set("left_out", left_out);
  return all;
}

}  // namespace shoal::report
