// Appends to a file that another program may read meanwhile: all of it or nothing.
#pragma once

#include <string>

namespace shoal::train {

// 0, or the errno for which it could not be written; then the file ends as before, where the system allows that. `fd`
// is open for appending.
int append_whole(int fd, const std::string& bytes);

}  // namespace shoal::train
