// See problems.h.
#include "config/problems.h"

#include <fmt/format.h>

#include <algorithm>

#include "shoal/error.h"

namespace shoal::config {

void Problems::add(const json::Mark& mark, std::string_view path, std::string message) {
  found_.push_back({mark, std::string(path), std::move(message)});
}

std::string Problems::place_of(const json::Mark& mark) const {
  if (mark.line > 0) return fmt::format("line {}", mark.line);
  if (mark.line < 0) return fmt::format("override {}", overrides_.at(static_cast<size_t>(-1 - mark.line)));
  return "";
}

void Problems::throw_if_any(std::string_view origin) const {
  if (found_.empty()) return;
  std::vector<Problem> ordered = found_;
  const auto rank = [](const Problem& problem) {  // lines first, then overrides in their order, then the rest
    const int line = problem.mark.line;
    if (line == 0) return std::pair(2, 0);
    return line > 0 ? std::pair(0, line) : std::pair(1, -line);
  };
  std::stable_sort(ordered.begin(), ordered.end(),
                   [&](const Problem& a, const Problem& b) { return rank(a) < rank(b); });
  std::string text = ordered.size() == 1 ? "1 mistake:" : fmt::format("{} mistakes:", ordered.size());
  for (const Problem& problem : ordered) {
    const std::string place = place_of(problem.mark);
    text += fmt::format("\n  [{}{}{}] {}", place, place.empty() || problem.path.empty() ? "" : ", ", problem.path,
                        problem.message);
  }
  throw Error(origin, text);
}

}  // namespace shoal::config
