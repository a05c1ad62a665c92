// Files that a user names, opened to be read. Only regular ones: a FIFO that nobody writes to would be waited for
// without end, and a device may do something when it is opened.
#pragma once

#include <string>

namespace shoal {

struct OpenedFile {
  int fd = -1;           // the caller closes it; -1: it could not be opened
  int error_number = 0;  // why not, as the system has it; 0: it is there and no regular file
  std::string kind;      // what it is then: "a FIFO"
};
// Never waits and never throws.
OpenedFile open_regular(const std::string& path);

// The whole text of a file. Throws an Error with `place`: "the file cannot be read: it is a FIFO. <remedy>".
std::string read_regular(const std::string& path, const std::string& place, const std::string& remedy);

}  // namespace shoal
