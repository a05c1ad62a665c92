// See members.h.
#include "comm/group/members.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace shoal {

namespace {

constexpr size_t kMostSpelledOut = 8;  // in a key; above that a number stands for them

}  // namespace

std::string to_text(const std::vector<int>& ranks) {
  std::vector<std::string> numbers;
  for (const int rank : ranks) numbers.push_back(std::to_string(rank));
  return "{" + join(numbers, " ") + "}";
}

Members::Members(std::vector<int> ranks, int own, std::string name, std::vector<int> hosts)
    : ranks_(std::move(ranks)), name_(std::move(name)), hosts_(std::move(hosts)) {
  const auto found = std::find(ranks_.begin(), ranks_.end(), own);
  SHOAL_CHECK(found != ranks_.end());
  rank_ = static_cast<int>(found - ranks_.begin());
}

Members Members::all(int world, int rank, std::vector<int> hosts) {
  std::vector<int> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  Members members(std::move(ranks), rank, "", std::move(hosts));
  members.are_a_part_ = false;
  return members;
}

bool Members::is_elsewhere(int rank, int from) const {
  return !hosts_.empty() &&
         hosts_.at(static_cast<size_t>(global(rank))) != hosts_.at(static_cast<size_t>(global(from)));
}

std::string Members::channel_name(const std::string& channel) const {
  if (name_.empty()) return channel;
  return channel.empty() ? name_ : channel + " of " + name_;
}

std::string Members::channel_key(const std::string& channel) const {
  if (!are_a_part_) return channel;
  const std::string ranks = ranks_.size() <= kMostSpelledOut
                                ? to_text(ranks_)
                                : fmt::format("{{{} ... {:016x}}}", ranks_.front(), hash_text(to_text(ranks_)));
  return channel_name(channel) + " " + ranks;
}

}  // namespace shoal
