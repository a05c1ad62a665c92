// See columns.h.
#include "report/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "report/flat_line.h"

namespace shoal::report {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

struct Numbers {
  std::vector<std::pair<std::string, double>> values;
  double step = kNone;
};

bool read_numbers(const std::string& line, Numbers& numbers) {
  numbers.values.clear();
  numbers.step = kNone;
  const bool whole = read_flat_line(line, [&](std::string_view key, double value) {
    if (key == "step") {
      numbers.step = value;
    } else {
      numbers.values.emplace_back(key, value);
    }
  });
  return whole && numbers.step >= 0 && numbers.step == std::floor(numbers.step) && numbers.step < 1e15;
}

void resize(Columns& columns, size_t count) {
  columns.steps.resize(count);
  for (auto& [name, values] : columns.values) values.resize(count, kNone);
}

void add(Columns& columns, const Numbers& numbers) {
  const auto step = static_cast<int64_t>(numbers.step);
  // Of a run that took steps again, by whatever wrote its lines: the later ones are what became of it.
  const auto place = std::lower_bound(columns.steps.begin(), columns.steps.end(), step);
  if (place != columns.steps.end()) {
    columns.notes.push_back(fmt::format("the steps from {} on stand twice: the later lines count", step));
    resize(columns, static_cast<size_t>(place - columns.steps.begin()));
  }
  columns.steps.push_back(step);
  for (const auto& [name, value] : numbers.values) {
    std::vector<double>& column = columns.values[name];
    column.resize(columns.steps.size(), kNone);
    column.back() = value;
  }
}

}  // namespace

const std::vector<double>& Columns::of(const std::string& name) const {
  static const std::vector<double> kNothing;
  const auto found = values.find(name);
  return found == values.end() ? kNothing : found->second;
}

Columns read_columns(const std::string& path) {
  Columns columns;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return columns;
  std::ifstream file(path, std::ios::binary);
  Numbers numbers;
  int64_t number = 0, unreadable = 0, first_unreadable = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty()) continue;
    if (read_numbers(line, numbers)) {
      add(columns, numbers);
    } else if (file.eof()) {
      columns.notes.emplace_back("the last line of metrics.jsonl is cut off, and left out");
    } else if (++unreadable == 1) {
      first_unreadable = number;
    }
  }
  if (unreadable > 0) {
    columns.notes.push_back(fmt::format("{} of metrics.jsonl cannot be read, the first of them line {}, left out",
                                        unreadable == 1 ? "a line" : fmt::format("{} lines", unreadable),
                                        first_unreadable));
  }
  resize(columns, columns.steps.size());
  return columns;
}

}  // namespace shoal::report
