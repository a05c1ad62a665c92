// See parts.h.
#include "comm/group/parts.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <vector>

#include "base/text.h"

namespace shoal {

namespace {

// What keeps the parts from being a partition; empty: nothing.
std::string mistake_in(const Parts& parts, const Members& whole) {
  std::map<int, int> found;
  for (const int rank : whole.ranks()) found[rank] = 0;
  for (const std::vector<int>& part : parts) {
    if (part.empty()) return "a part has no ranks";
    for (const int rank : part) {
      const auto place = found.find(rank);
      if (place == found.end()) return fmt::format("rank {} is not of this group", rank);
      if (++place->second > 1) return fmt::format("rank {} stands there twice", rank);
    }
  }
  for (const auto& [rank, times] : found) {
    if (times == 0) return fmt::format("rank {} stands in no part", rank);
  }
  return "";
}

}  // namespace

std::string to_text(const Parts& parts) {
  std::vector<std::string> texts;
  for (const std::vector<int>& part : parts) texts.push_back(to_text(part));
  return join(texts, " ");
}

Members part_of(const Parts& parts, const Members& whole, const std::string& name) {
  const std::string mistake = mistake_in(parts, whole);
  if (!mistake.empty()) {
    throw WrongParts(fmt::format("comm rank {}", whole.global()),
                     fmt::format("split of {} into {}: {}. Put each of the ranks {} into one part.", name,
                                 to_text(parts), mistake, to_text(whole.ranks())));
  }
  for (const std::vector<int>& part : parts) {
    for (const int rank : part) {
      if (rank == whole.global()) return Members(part, rank, name, whole.hosts());
    }
  }
  return whole;  // not reached: this rank is one of the group
}

}  // namespace shoal
