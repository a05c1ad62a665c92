// See page.h.
#include "report/page.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/unix_time.h"
#include "report/figures.h"
#include "report/page_files.h"
#include "report/plain_figure.h"
#include "report/reduce.h"
#include "shoal/error.h"
#include "train/compare_runs.h"

namespace shoal::report {

namespace {

constexpr size_t kMostPointsOfLongRuns = 10'000;
// Comparing to the bit reads every line as JSON, which takes some microseconds each.
constexpr size_t kMostCompared = 200'000;

json::Value series_of(const RunFolder& run) {
  const std::vector<int64_t>& steps = run.steps.steps;
  const size_t each = steps.size() <= kMostPoints ? 1 : steps_a_point(steps.size(), kMostPointsOfLongRuns);
  json::Value series = json::Object{};
  series.set("steps_a_point", static_cast<int64_t>(each));
  std::vector<double> at, seconds;
  const std::vector<double>& ms = run.steps.of("step_ms");
  double sum = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i < ms.size() && std::isfinite(ms[i])) sum += ms[i] * 1e-3;
    if ((i + 1) % each != 0 && i + 1 != steps.size()) continue;
    at.push_back(static_cast<double>(steps[i]));
    seconds.push_back(sum);
  }
  series.set("step", base64_of(at));
  series.set("seconds", base64_of(seconds));
  for (const auto& [name, values] : run.steps.values) {
    if (name == "tokens" || name == "skipped" || name.ends_with("_bytes")) continue;
    const Points points = reduce(values, each);
    json::Value own = json::Object{};
    own.set("mean", base64_of(points.mean));
    const bool whole = name == "loss" || name == "grad_norm" || name == "tokens_per_s" || name == "step_ms";
    if (each > 1 && whole) {
      own.set("least", base64_of(points.least));
      own.set("most", base64_of(points.most));
    }
    series.set(name, std::move(own));
  }
  return series;
}

json::Value evaluations_of(const RunFolder& run) {
  json::Array all;
  const std::vector<double>& losses = run.evaluations.of("loss");
  const size_t count = run.evaluations.steps.size();
  const size_t each = steps_a_point(count, kMostPoints);
  for (size_t i = 0; i < count; i += each) {
    if (i >= losses.size() || !std::isfinite(losses[i])) continue;
    all.emplace_back(json::Array{run.evaluations.steps[i], losses[i]});
  }
  return all;
}

// What says where the run stands: under way as far as its files know, or how it ended.
std::string state_of(const RunFolder& run) {
  if (run.events.empty()) return "";
  const json::Value* event = run.events.back().find("event");
  const std::string name = event != nullptr && event->is_text() ? event->as_text() : "";
  if (name == "end") return "done";
  if (name == "stopped" || name == "failed") return name;
  return "under way";
}

json::Value run_data(const RunFolder& run) {
  json::Value data = json::Object{};
  data.set("name", run.name);
  data.set("path", run.path);
  data.set("state", state_of(run));
  data.set("about", run.about);
  data.set("summary", summary_of(run));
  data.set("parts", step_parts(run));
  data.set("ranks", ranks_of(run));
  data.set("memory", memory_of(run));
  data.set("marks", marks_of(run));
  data.set("config", config_keys(run));
  data.set("evaluations", evaluations_of(run));
  json::Array events, traces, notes;
  for (const json::Value& event : run.events) events.push_back(event);
  for (const std::string& trace : run.traces) traces.emplace_back(trace);
  for (const std::string& note : run.notes) notes.emplace_back(note);
  data.set("events", std::move(events));
  data.set("traces", std::move(traces));
  data.set("notes", std::move(notes));
  return data;
}

json::Value comparison_of(const RunFolder& first, const RunFolder& second) {
  json::Value found = json::Object{};
  found.set("first", first.name);
  found.set("second", second.name);
  const size_t longest = std::max(first.steps.steps.size(), second.steps.steps.size());
  if (longest > kMostCompared) {
    found.set("why_not",
              fmt::format("runs of more than {} steps are compared by `shoal compare` alone", kMostCompared));
    return found;
  }
  try {
    const train::Comparison compared = train::compare_runs(train::read_run(first.path), train::read_run(second.path));
    found = json::parse(train::to_json(compared), "comparison");
    found.set("text", train::to_text(compared));
    found.set("first", first.name);
    found.set("second", second.name);
    // The steps themselves are long, and drawn already.
    for (const char* list : {"steps", "evaluated", "digested"}) {
      const auto count = static_cast<int64_t>(found.find(list)->as_array().size());
      found.set(list, count);
    }
  } catch (const Error& error) {
    found.set("why_not", error.what());
  }
  return found;
}

json::Value data_of(const std::vector<RunFolder>& runs, bool curves) {
  json::Value data = json::Object{};
  data.set("made", unix_seconds());
  json::Array all, comparisons;
  for (const RunFolder& run : runs) {
    all.push_back(run_data(run));
    if (curves) all.back().set("series", series_of(run));
    if (&run != &runs.front()) comparisons.push_back(comparison_of(runs.front(), run));
  }
  data.set("runs", std::move(all));
  data.set("comparisons", std::move(comparisons));
  return data;
}

void replace(std::string& text, const std::string& mark, const std::string& with) {
  if (const size_t at = text.find(mark); at != std::string::npos) text.replace(at, mark.size(), with);
}

}  // namespace

json::Value page_data(const std::vector<RunFolder>& runs) { return data_of(runs, true); }
json::Value summary_data(const std::vector<RunFolder>& runs) { return data_of(runs, false); }

std::string json_for_script(const json::Value& value) {
  const std::string text = json::write(value);
  std::string safe;
  safe.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    // These stand in texts alone, where a number stands for them too. U+2028 and U+2029 were ends of lines once.
    if (text[i] == '<' || text[i] == '>' || text[i] == '&') {
      safe += fmt::format("\\u{:04x}", static_cast<int>(text[i]));
    } else if (text.compare(i, 3, "\xe2\x80\xa8") == 0 || text.compare(i, 3, "\xe2\x80\xa9") == 0) {
      safe += text[i + 2] == '\xa8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      safe += text[i];
    }
  }
  return safe;
}

std::string escaped_html(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '&': safe += "&amp;"; break;
      case '"': safe += "&quot;"; break;
      case '\'': safe += "&#39;"; break;
      default: safe += c;
    }
  }
  return safe;
}

std::string page_html(const json::Value& data, const std::string& plain, const PageOptions& options) {
  std::string names;
  for (const json::Value& run : data.find("runs")->as_array()) {
    names += (names.empty() ? "" : ", ") + run.find("name")->as_text();
  }
  std::string page = kPageFrame;
  // What comes from a user goes in last, behind every mark.
  replace(page, "/*style*/", kPageStyle);
  replace(page, "/*script*/", std::string(kPageCharts) + kPageScript);
  replace(page, "\"live\"", options.live ? "true" : "false");
  const size_t data_at = page.find("<!--data-->");
  const std::string rest = page.substr(data_at + std::string("<!--data-->").size());
  page.resize(data_at);
  page += json_for_script(data) + rest;
  const size_t title_at = page.find("<!--title-->");
  page.replace(title_at, std::string("<!--title-->").size(), escaped_html(names));
  const size_t plain_at = page.find("<!--plain-->");
  if (plain_at != std::string::npos) page.replace(plain_at, std::string("<!--plain-->").size(), plain);
  return page;
}

void write_page(const std::vector<std::string>& runs, const std::string& path) {
  std::vector<RunFolder> read;
  for (const std::string& run : runs) read.push_back(read_run_folder(run));
  const std::string page = page_html(page_data(read), plain_figure(read));
  const std::string whole = path + ".whole";
  std::error_code failed;
  std::ofstream file(whole, std::ios::binary);
  file << page;
  file.close();
  if (file) std::filesystem::rename(whole, path, failed);
  if (file && !failed) return;
  std::filesystem::remove(whole, failed);
  throw Error("report " + path, "cannot be written. Is the folder there, with space on its disk?");
}

}  // namespace shoal::report
