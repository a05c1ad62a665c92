// See flat_line.h.
#include "report/flat_line.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace shoal::report {

namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool is_over() {
    skip_blanks();
    return at_ == text_.size();
  }
  bool take(char c) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    skip_blanks();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  // Between its quotes, as written.
  bool take_text(std::string_view& text) {
    if (!take('"')) return false;
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) return false;
    text = text_.substr(begin, at_ - begin);
    ++at_;
    return true;
  }
  bool take_number(double& number) {
    skip_blanks();
    const std::from_chars_result read = std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
    if (read.ec != std::errc() || read.ptr == text_.data() + at_) return false;
    at_ = static_cast<size_t>(read.ptr - text_.data());
    return true;
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
  }

  std::string_view text_;
  size_t at_ = 0;
};

bool take_list(Reader& reader, std::string_view key, const SeeNumber& see) {
  double largest = std::numeric_limits<double>::quiet_NaN(), number = 0;
  if (!reader.take(']')) {
    do {
      if (!reader.take_number(number)) return false;
      largest = std::fmax(largest, number);
    } while (reader.take(','));
    if (!reader.take(']')) return false;
  }
  see(key, largest);
  return true;
}

bool take_value(Reader& reader, std::string_view key, const SeeNumber& see) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  double number = 0;
  std::string_view text;
  if (reader.take_text(text)) return true;
  if (reader.take('[')) return take_list(reader, key, see);
  for (const char* word : {"null", "NaN", "Infinity", "-Infinity"}) {
    if (reader.take_word(word)) return see(key, kNone), true;
  }
  if (reader.take_word("true")) return see(key, 1), true;
  if (reader.take_word("false")) return see(key, 0), true;
  if (!reader.take_number(number)) return false;
  see(key, number);
  return true;
}

}  // namespace

bool read_flat_line(std::string_view line, const SeeNumber& see) {
  Reader reader(line);
  if (!reader.take('{')) return false;
  if (reader.take('}')) return reader.is_over();
  do {
    std::string_view key;
    if (!reader.take_text(key) || !reader.take(':') || !take_value(reader, key, see)) return false;
  } while (reader.take(','));
  return reader.take('}') && reader.is_over();
}

}  // namespace shoal::report
