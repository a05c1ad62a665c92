// Texts between ranks, and failing together: when one rank cannot go on, every rank throws the same message and none
// is left waiting. Every rank makes these calls in the same order.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "shoal/group.h"

namespace shoal::checkpoint {

// What each rank gave, in rank order.
std::vector<std::string> gather_texts(Group& world, const Subject& subject, const std::string& mine);

// What rank 0 gave.
std::string broadcast_text(Group& world, const Subject& subject, const std::string& of_rank_0);

// Does a rank's own part, which must not communicate. Returns "" or, if any rank's part threw, on every rank the same
// words: which rank failed and why. No rank works any more then.
std::string failure_of(Group& world, const Subject& subject, const std::function<void()>& part);

// The same, and throws an Error with this place if any rank's part did.
void act_together(Group& world, const Subject& subject, const std::string& place, const std::function<void()>& part);

// The message of an error without its place.
std::string message_of(const std::exception& error);

}  // namespace shoal::checkpoint
