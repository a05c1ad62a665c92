// See run_folder.h.
#include "report/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/regular_file.h"
#include "shoal/error.h"

namespace shoal::report {

namespace {

namespace fs = std::filesystem;

json::Value read_object(const fs::path& path, std::vector<std::string>& notes) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return {};
  try {
    json::Value value = json::parse(read_regular(path.string(), path.string(), ""), path.string());
    if (value.is_object()) return value;
    notes.push_back(fmt::format("{} holds no object, and is left out", path.filename().string()));
  } catch (const Error& error) {
    notes.push_back(fmt::format("{} It is left out.", error.what()));
  }
  return {};
}

std::vector<json::Value> read_lines(const fs::path& path, std::vector<std::string>& notes) {
  std::vector<json::Value> lines;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return lines;
  std::ifstream file(path, std::ios::binary);
  int64_t unreadable = 0;
  for (std::string line; std::getline(file, line);) {
    try {
      json::Value value = json::parse(line, "line");
      const json::Value* step = value.is_object() ? value.find("step") : nullptr;
      if (step != nullptr && step->is_integer()) {
        lines.push_back(std::move(value));
        continue;
      }
    } catch (const Error&) {
    }
    ++unreadable;
  }
  if (unreadable > 0) {
    notes.push_back(fmt::format("{} of {} cannot be read, and {} left out",
                                unreadable == 1 ? "a line" : fmt::format("{} lines", unreadable),
                                path.filename().string(), unreadable == 1 ? "is" : "are"));
  }
  return lines;
}

}  // namespace

RunFolder read_run_folder(const std::string& path) {
  RunFolder run;
  run.path = path;
  std::error_code ignored;
  fs::path folder = path;
  if (folder.filename() == "metrics.jsonl" && fs::is_regular_file(folder, ignored)) folder = folder.parent_path();
  if (folder.empty()) folder = ".";
  if (!fs::is_directory(folder, ignored)) {
    throw Error(path, "is not there, or is no folder. Give a run's folder, the --out of shoal train.");
  }
  if (!fs::exists(folder / "metrics.jsonl", ignored) && !fs::exists(folder / "run.json", ignored)) {
    throw Error(path, "holds no metrics.jsonl and no run.json. Give a run's folder, the --out of shoal train.");
  }
  run.name = fs::absolute(folder, ignored).lexically_normal().filename().string();
  if (run.name.empty()) run.name = fs::absolute(folder, ignored).lexically_normal().parent_path().filename().string();
  run.steps = read_columns((folder / "metrics.jsonl").string());
  run.evaluations = read_columns((folder / "eval.jsonl").string());
  run.notes = run.steps.notes;
  run.events = read_lines(folder / "events.jsonl", run.notes);
  run.ranks = read_lines(folder / "ranks.jsonl", run.notes);
  run.about = read_object(folder / "run.json", run.notes);
  run.config = read_object(folder / "config.json", run.notes);
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("trace") && name.ends_with(".json")) run.traces.push_back(name);
  }
  std::sort(run.traces.begin(), run.traces.end());
  return run;
}

}  // namespace shoal::report
