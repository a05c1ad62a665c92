// What Group::split was asked for: as text, whether it is a partition, and which part is this rank's.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "comm/group/members.h"
#include "shoal/error.h"
#include "shoal/group.h"

namespace shoal {

// The parts do not hold each rank once. All ranks find the same, so the group that was to be split is sound.
struct WrongParts : Error {
  WrongParts(std::string_view place, std::string problem) : Error(place, problem), problem(std::move(problem)) {}
  std::string problem;  // the message without its place
};

// "{0 1} {2 3}".
std::string to_text(const Parts& parts);

// The members of this rank's part, named `name`; throws WrongParts unless each of `whole` stands in one part.
Members part_of(const Parts& parts, const Members& whole, const std::string& name);

}  // namespace shoal
