// See run_record.h.
#include "train/run_record.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "base/regular_file.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

namespace fs = std::filesystem;

// Python's json writes words that JSON does not have.
std::string with_quoted_words(std::string line) {
  for (const std::string word : {": NaN", ": Infinity", ": -Infinity"}) {
    for (size_t at = 0; (at = line.find(word, at)) != std::string::npos; at += word.size() + 2) {
      line.replace(at, word.size(), ": \"" + word.substr(2) + "\"");
    }
  }
  return line;
}

// Null where it is none with a step.
json::Value parsed_line(const std::string& line) {
  try {
    json::Value value = json::parse(with_quoted_words(line), "line");
    const json::Value* step = value.is_object() ? value.find("step") : nullptr;
    return step != nullptr && step->is_integer() ? std::move(value) : json::Value();
  } catch (const Error&) {
    return {};
  }
}

Lines read_lines(const fs::path& path, RunRecord& record) {
  Lines lines;
  std::map<int64_t, int> line_of;
  std::ifstream file(path, std::ios::binary);
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    json::Value value = parsed_line(line);
    if (value.is_null()) {
      record.notes.push_back(file.eof()
                                 ? fmt::format("{}: the last line is cut off, and left out", path.string())
                                 : fmt::format("{}: line {} cannot be read, and is left out", path.string(), number));
      continue;
    }
    const int64_t step = value.find("step")->as_integer();
    if (const auto [earlier, is_new] = line_of.emplace(step, number); !is_new) {
      throw Error(path.string(), fmt::format("step {} stands twice, in lines {} and {}. Give the lines of one run.",
                                             step, earlier->second, number));
    }
    lines.emplace(step, std::move(value));
  }
  return lines;
}

void add_settings(const json::Value& value, const std::string& path, RunRecord& record) {
  if (!value.is_object() || value.as_object().empty()) {
    record.settings.emplace_back(path, json::write(value));
    return;
  }
  for (const json::Member& member : value.as_object()) {
    add_settings(member.value, path.empty() ? member.key : path + "." + member.key, record);
  }
}

void read_settings(const fs::path& path, RunRecord& record) {
  if (!fs::is_regular_file(path)) return;
  try {
    add_settings(json::parse(read_regular(path.string(), path.string(), ""), path.string()), "", record);
  } catch (const Error& error) {
    record.notes.push_back(fmt::format("{} The run's settings are not compared by it.", error.what()));
  }
}

// A name of a file that may also be a device or a pipe is refused before it is opened.
fs::path metrics_of(const std::string& path) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  const fs::path metrics = is_folder ? fs::path(path) / "metrics.jsonl" : fs::path(path);
  if (fs::is_regular_file(metrics, ignored)) return metrics;
  if (is_folder) {
    throw Error(path, "holds no metrics.jsonl. Give a run's folder, the --out of shoal train.");
  }
  throw Error(path,
              "is not there, or is no file. Give a run's folder, the --out of shoal train, or its metrics.jsonl.");
}

}  // namespace

RunRecord read_run(const std::string& path) {
  RunRecord record;
  record.path = path;
  const fs::path metrics = metrics_of(path);
  record.metrics = read_lines(metrics, record);
  if (record.metrics.empty()) {
    throw Error(metrics.string(), "has no line of a step. Give a run that has taken one.");
  }
  if (metrics.filename() != "metrics.jsonl") return record;
  const fs::path folder = metrics.parent_path();
  if (fs::is_regular_file(folder / "eval.jsonl")) record.evaluations = read_lines(folder / "eval.jsonl", record);
  if (fs::is_regular_file(folder / "digests.jsonl")) record.digests = read_lines(folder / "digests.jsonl", record);
  read_settings(folder / "run.json", record);
  read_settings(folder / "config.json", record);
  return record;
}

}  // namespace shoal::train
