// Lines that the processes of a test write and nobody else does: each begins with a mark, and comes in one write that
// begins a line of its own. So no warning of a library is taken for one of them, nor stands within one.
//
//   say("ready");                                    // in a rank
//   EXPECT_THAT(lines_said(outcome.output), Contains("ready"));
#pragma once

#include <unistd.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace shoal::testing {

inline constexpr const char* kMark = "[test] ";

inline void say(const std::string& line) {
  std::fflush(stdout);
  const std::string whole = "\n" + (kMark + line) + "\n";
  if (write(STDOUT_FILENO, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size())) std::perror("say");
}

// What was said, without the marks; a last line that has no end yet is not there.
inline std::vector<std::string> lines_said(const std::string& output) {
  const std::string mark = kMark;
  std::vector<std::string> lines;
  std::istringstream text(output);
  for (std::string line; std::getline(text, line) && !text.eof();) {
    if (line.rfind(mark, 0) == 0) lines.push_back(line.substr(mark.size()));
  }
  return lines;
}

}  // namespace shoal::testing
