// Reads a whole checkpoint and says what is wrong with it.
#pragma once

#include <string>
#include <vector>

namespace shoal::checkpoint {

// One line a problem, each naming the file and the piece of the parameter; empty: every byte is as it was written.
std::vector<std::string> verify(const std::string& path);

}  // namespace shoal::checkpoint
