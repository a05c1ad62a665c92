// See include/shoal/error.h.
#include "shoal/error.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal {

namespace {

// Bytes of the character of UTF-8 that the text begins with; 0: it begins with none.
size_t character_nbytes(std::string_view text) {
  const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t nbytes = first >= 0xc2 && first < 0xe0   ? 2
                        : (first & 0xf0) == 0xe0        ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  for (size_t at = 1; at < nbytes; ++at) {
    if ((byte(at) & 0xc0) != 0x80) return 0;
  }
  // Longer than need be, halves of a pair, beyond the last.
  const bool is_other = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0) ||
                        (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90);
  return is_other ? 0 : nbytes;
}

constexpr size_t kLongestWord = 1000, kShownOfWord = 200, kLongestText = 16000;

// A message quotes what is in files, which may be megabytes of anything: a word that is no path any more is cut off,
// and so is a text that nobody reads to its end.
std::string shortened(std::string_view text) {
  std::string shown;
  while (!text.empty() && shown.size() < kLongestText) {
    const size_t word = std::min(text.find_first_of(" \n\t"), text.size());
    const size_t rest = std::min(text.size(), word + 1);
    if (word > kLongestWord) {
      shown += fmt::format("{}[... {} bytes]{}", text.substr(0, kShownOfWord), word - kShownOfWord,
                           text.substr(word, rest - word));
    } else {
      shown += text.substr(0, rest);
    }
    text.remove_prefix(rest);
  }
  if (!text.empty()) shown += fmt::format("[... {} bytes more]", text.size());
  return shown;
}

// What a terminal would act on, and what is no text, stands as \x1b in a message.
std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t nbytes = character_nbytes(text);
    const auto first = static_cast<unsigned char>(text.front());
    const bool is_control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f ||
                            (nbytes == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);
    if (nbytes > 0 && !is_control) {
      shown += text.substr(0, nbytes);
      text.remove_prefix(nbytes);
    } else {
      shown += fmt::format("\\x{:02x}", first);
      text.remove_prefix(1);
    }
  }
  return shown;
}

}  // namespace

Error::Error(std::string_view place, std::string_view message)
    : std::runtime_error(printable(shortened(fmt::format("[{}] {}", place, message)))), place_(place) {}

}  // namespace shoal
