// See line_cutter.h.
#include "launch/line_cutter.h"

#include "base/text.h"

namespace shoal::launch {

namespace {

// A stream without line ends is cut here, so that memory stays bounded.
constexpr size_t kLongestLine = size_t{1} << 20;

}  // namespace

std::vector<std::string> LineCutter::take(std::string_view bytes) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool after_return = !rest_.empty() && rest_.back() == '\r';
    // "\r" alone ends a line; with "\n" after it the two are one end. So it waits for the byte that follows.
    if (after_return && bytes[i] != '\n') {
      lines.push_back(std::move(rest_));
      rest_.clear();
    }
    rest_ += bytes[i];
    if (bytes[i] == '\n') {
      lines.push_back(std::move(rest_));
      rest_.clear();
    } else if (rest_.size() >= kLongestLine && bytes[i] != '\r') {
      lines.push_back(std::move(rest_) + "\n");
      rest_.clear();
    }
  }
  return lines;
}

std::vector<std::string> LineCutter::finish() {
  if (rest_.empty()) return {};
  std::vector<std::string> lines = {std::move(rest_) + "\n"};
  rest_.clear();
  return lines;
}

void LastLines::add(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  if (line.empty()) return;
  lines_.emplace_back(line);
  if (lines_.size() > most_) lines_.pop_front();
}

std::string LastLines::text() const { return join({lines_.begin(), lines_.end()}, "\n"); }

std::string prefixed(std::string_view prefix, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += prefix;
    text += line;
  }
  return text;
}

}  // namespace shoal::launch
