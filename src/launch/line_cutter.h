// Cuts what a rank prints into whole lines, so that lines of several ranks never mix, and keeps the last ones. Pure.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::launch {

// One stream of one rank. A line ends with "\n" or, as progress bars write them, with "\r".
class LineCutter {
 public:
  // The whole lines that these bytes complete, each with its end.
  std::vector<std::string> take(std::string_view bytes);
  // What is left at the end of the stream: no line, or one that is given a "\n".
  std::vector<std::string> finish();

 private:
  std::string rest_;
};

// The last lines of a rank, of both its streams, in the order in which they came.
class LastLines {
 public:
  explicit LastLines(size_t most = 20) : most_(most) {}
  void add(std::string_view line);
  // Joined, without a "\n" at the end.
  std::string text() const;

 private:
  size_t most_;
  std::deque<std::string> lines_;
};

// The lines with the prefix before each, as one text to write at once.
std::string prefixed(std::string_view prefix, const std::vector<std::string>& lines);

}  // namespace shoal::launch
