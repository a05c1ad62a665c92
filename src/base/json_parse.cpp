// See json.h: the reader. One pass over the text by recursive descent.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "base/json.h"
#include "base/lfs_pointer.h"
#include "shoal/error.h"

namespace shoal::json {
namespace {

constexpr int kDeepest = 200;                               // levels of nesting
constexpr double kExactIntegers = 9'007'199'254'740'992.0;  // 2^53: beyond, a double may stand for several integers

void append_utf8(uint32_t point, std::string& out) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xc0 | point >> 6), put(0x80 | (point & 0x3f));
  } else if (point < 0x10000) {
    put(0xe0 | point >> 12), put(0x80 | (point >> 6 & 0x3f)), put(0x80 | (point & 0x3f));
  } else {
    put(0xf0 | point >> 18), put(0x80 | (point >> 12 & 0x3f)), put(0x80 | (point >> 6 & 0x3f));
    put(0x80 | (point & 0x3f));
  }
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view origin, std::vector<Duplicate>* duplicates, Syntax syntax)
      : text_(text), origin_(origin), duplicates_(duplicates), hjson_(syntax == Syntax::hjson) {
    if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
  }

  Value document() {
    skip_blank();
    Value value = is_without_braces() ? Value(parse_members('\0')) : parse_value("a value");
    skip_blank();
    if (at_ < text_.size()) fail("the end of the text");
    return value;
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool looking_at(std::string_view word) const { return text_.substr(at_).starts_with(word); }

  void advance(size_t count = 1) {
    for (; count > 0 && at_ < text_.size(); --count) {
      const char c = text_[at_++];
      if (c == '\n') {
        ++mark_.line;
        mark_.column = 1;
      } else if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) {  // columns count characters, not bytes
        ++mark_.column;
      }
    }
  }

  // Hjson: the whole is an object whose braces were left out. One value alone is no object.
  bool is_without_braces() const {
    if (!hjson_ || at_ >= text_.size() || std::string_view("{[").find(peek()) != std::string_view::npos) return false;
    return text_.substr(at_).find(':') != std::string_view::npos;
  }

  [[noreturn]] void throw_at(const Mark& mark, const std::string& message) const {
    throw Error(fmt::format("{} line {}, column {}", origin_, mark.line, mark.column), message);
  }

  [[noreturn]] void fail(std::string_view expected) const {
    throw_at(mark_, fmt::format("expected {} but found {}. Correct the text there.", expected, found()));
  }

  std::string found() const {
    if (at_ >= text_.size()) return "the end of the text";
    if (peek() == '\n' || peek() == '\r') return "the end of the line";
    size_t end = at_;
    const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    while (end < text_.size() && end - at_ < 20 && is_word(text_[end])) ++end;
    if (end == at_) {
      do ++end;
      while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xc0) == 0x80);
    }
    return fmt::format("'{}'", text_.substr(at_, end - at_));
  }

  void skip_blank() {
    while (at_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(peek())) != 0) {
        advance();
      } else if (peek() == '#' || looking_at("//")) {
        while (at_ < text_.size() && peek() != '\n') advance();
      } else if (looking_at("/*")) {
        const Mark opened = mark_;
        const size_t end = text_.find("*/", at_ + 2);
        if (end == std::string_view::npos) throw_at(opened, "this comment is never closed. End it with */.");
        advance(end + 2 - at_);
      } else {
        return;
      }
    }
  }

  Value parse_value(std::string_view expected) {
    const Mark mark = mark_;
    Value value = parse_unmarked(expected);
    value.mark = mark;
    return value;
  }

  Value parse_unmarked(std::string_view expected) {
    const char c = peek();
    if (c == '{') return parse_object();
    if (c == '[') return parse_array();
    if (c == '"') return parse_text();
    if (hjson_ && looking_at("'''")) return parse_lines();
    if (hjson_ && c == '\'') return parse_text();
    if ((c == '-' || (c >= '0' && c <= '9')) && (!hjson_ || is_number())) return parse_number();
    for (const auto& [word, value] :
         {std::pair<std::string_view, Value>{"true", true}, {"false", false}, {"null", {}}}) {
      if (looking_at(word) && (!hjson_ || ends_value(at_ + word.size()))) {
        advance(word.size());
        return value;
      }
    }
    for (const std::string_view word : {"True", "False", "None", "NaN", "Infinity", "inf", "nan"}) {
      if (looking_at(word) && (!hjson_ || ends_value(at_ + word.size())))
        throw_at(mark_, fmt::format("{} is not JSON. Write true, false, null or a number.", word));
    }
    if (c == '\'') throw_at(mark_, "single quotes are not JSON. Put text in double quotes.");
    if (hjson_ && at_ < text_.size() && std::string_view("{}[],:\n\r").find(c) == std::string_view::npos) {
      return parse_line();
    }
    fail(expected);
  }

  // In Hjson a word or a number with more behind it on its line is a text without quotes: 7b-chat, true story.
  bool ends_value(size_t end) const {
    while (end < text_.size() && (text_[end] == ' ' || text_[end] == '\t')) ++end;
    const std::string_view rest = text_.substr(end);
    return rest.empty() || std::string_view(",:]}#\r\n").find(rest[0]) != std::string_view::npos ||
           rest.starts_with("//") || rest.starts_with("/*");
  }

  bool is_number() const {
    const auto is_e = [&](size_t at) { return at > at_ && (text_[at] == 'e' || text_[at] == 'E'); };
    size_t end = at_;
    for (; end < text_.size(); ++end) {
      const char c = text_[end];
      const bool sign = (c == '-' || c == '+') && (end == at_ || is_e(end - 1));
      if (std::isdigit(static_cast<unsigned char>(c)) == 0 && c != '.' && !sign && !is_e(end)) break;
    }
    return ends_value(end);
  }

  // Hjson: a text without quotes, to the end of its line.
  Value parse_line() {
    const Mark begun = mark_;
    const size_t begin = at_;
    while (at_ < text_.size() && peek() != '\n' && peek() != '\r') advance();
    std::string_view line = text_.substr(begin, at_ - begin);
    while (line.ends_with(' ') || line.ends_with('\t')) line.remove_suffix(1);
    for (const std::string_view odd : {"{", "}", "[", "]", ",", " #", " //", " /*", "\t#", "\t//"}) {
      if (line.find(odd) == std::string_view::npos) continue;
      throw_at(begun, fmt::format("a text without quotes goes to the end of its line, and here that is \"{}\". Put the "
                                  "text in quotes.",
                                  line));
    }
    return Value(line);
  }

  // Hjson: ''' over several lines; indentation as deep as the quotes themselves is not part of it.
  Value parse_lines() {
    const Mark opened = mark_;
    const int indent = mark_.column - 1;
    advance(3);
    const size_t end = text_.find("'''", at_);
    if (end == std::string_view::npos) throw_at(opened, "this text is never closed. End it with '''.");
    std::string out;
    bool first = true;
    while (at_ < end) {
      size_t stop = std::min(text_.find('\n', at_), end);
      std::string_view line = text_.substr(at_, stop - at_);
      if (line.ends_with('\r')) line.remove_suffix(1);
      const size_t blank = std::min(line.find_first_not_of(" \t"), line.size());
      if (!first) line.remove_prefix(std::min(blank, static_cast<size_t>(indent)));
      const bool empty_ends = (first || stop == end) && line.find_first_not_of(" \t") == std::string_view::npos;
      if (!empty_ends) out += (out.empty() ? "" : "\n") + std::string(line);
      first = false;
      advance(std::min(stop + 1, end) - at_);
    }
    advance(3);
    return Value(std::move(out));
  }

  void enter() {
    if (++depth_ > kDeepest) throw_at(mark_, fmt::format("nested deeper than {} levels. Flatten it.", kDeepest));
  }

  Value parse_object() {
    enter();
    advance();
    Object members = parse_members('}');
    advance();
    --depth_;
    return Value(std::move(members));
  }

  // Up to the closing brace, or to the end of the text ('\0').
  Object parse_members(char close) {
    Object members;
    std::unordered_map<std::string, Mark> seen;
    for (skip_blank(); peek() != close; skip_blank()) {
      const Mark mark = mark_;
      std::string key = parse_key();
      const auto [first, fresh] = seen.emplace(key, mark);
      const size_t outer_nbytes = path_.size();
      path_ += (path_.empty() ? "" : ".") + key;
      if (!fresh) report_duplicate({path_, first->second, mark});
      skip_blank();
      if (peek() != ':') fail(fmt::format("':' after the key \"{}\"", key));
      advance();
      skip_blank();
      Value value = parse_value(fmt::format("the value of \"{}\"", key));
      if (fresh) members.push_back({std::move(key), std::move(value), mark});
      path_.resize(outer_nbytes);
      if (!at_next(close)) fail("',' or '}'");
    }
    return members;
  }

  // Goes over what parts two values: a comma, or a new line in Hjson. False: there is neither, nor the end.
  bool at_next(char close) {
    const int line = mark_.line;
    skip_blank();
    if (peek() == ',') return advance(), true;
    return peek() == close || (hjson_ && mark_.line > line && at_ < text_.size());
  }

  std::string parse_key() {
    if (peek() == '"' || (hjson_ && peek() == '\'')) return parse_text().as_text();
    const auto is_word = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
    };
    const size_t begin = at_;
    while (is_word(peek())) advance();
    if (at_ == begin) fail("a key or '}'");
    return std::string(text_.substr(begin, at_ - begin));
  }

  void report_duplicate(const Duplicate& duplicate) {
    if (duplicates_ != nullptr) {
      duplicates_->push_back(duplicate);
      return;
    }
    throw_at(duplicate.second, fmt::format("the key \"{}\" is given twice, first on line {}. Remove one of them.",
                                           duplicate.path, duplicate.first.line));
  }

  Value parse_array() {
    enter();
    advance();
    Array items;
    for (skip_blank(); peek() != ']'; skip_blank()) {
      items.push_back(parse_value("a value or ']'"));
      if (!at_next(']')) fail("',' or ']'");
    }
    advance();
    --depth_;
    return Value(std::move(items));
  }

  Value parse_text() {
    const Mark opened = mark_;
    const char quote = peek();
    advance();
    std::string out;
    while (peek() != quote) {
      if (at_ >= text_.size() || peek() == '\n') {
        throw_at(opened, fmt::format("this text is never closed. End it with {}.", quote));
      }
      if (static_cast<unsigned char>(peek()) < 0x20 && peek() != '\t') fail("a printable character");
      if (peek() == '\\') {
        parse_escape(out);
      } else {
        out += peek();
        advance();
      }
    }
    advance();
    return Value(std::move(out));
  }

  void parse_escape(std::string& out) {
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    advance();
    if (peek() == 'u') {
      advance();
      uint32_t point = parse_hex4();
      if (point >= 0xd800 && point < 0xdc00) {
        if (!looking_at("\\u")) fail("the second half of a surrogate pair, \\uDC00 to \\uDFFF");
        advance(2);
        const uint32_t low = parse_hex4();
        if (low < 0xdc00 || low > 0xdfff) fail("the second half of a surrogate pair, \\uDC00 to \\uDFFF");
        point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
      }
      append_utf8(point, out);
      return;
    }
    if (hjson_ && peek() == '\'') {
      out += '\'';
      advance();
      return;
    }
    const size_t index = peek() == '\0' ? std::string_view::npos : kLetters.find(peek());
    if (index == std::string_view::npos) fail("one of \" \\ / b f n r t u after a backslash");
    out += kMeanings[index];
    advance();
  }

  uint32_t parse_hex4() {
    uint32_t point = 0;
    for (int i = 0; i < 4; ++i) {
      if (std::isxdigit(static_cast<unsigned char>(peek())) == 0) fail("four hexadecimal digits");
      const char c = static_cast<char>(std::tolower(peek()));
      point = point * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
      advance();
    }
    return point;
  }

  Value parse_number() {
    const Mark mark = mark_;
    const size_t begin = at_;
    const auto digits = [&] {
      const size_t first = at_;
      while (std::isdigit(static_cast<unsigned char>(peek())) != 0) advance();
      if (at_ == first) fail("a digit");
    };
    if (peek() == '-') advance();
    const size_t leading = at_;
    digits();
    if (text_[leading] == '0' && at_ - leading > 1)
      throw_at(mark, "a number does not begin with 0. Drop the leading zeros.");
    bool whole = true;
    if (peek() == '.') {
      whole = false;
      advance();
      digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      whole = false;
      advance();
      if (peek() == '+' || peek() == '-') advance();
      digits();
    }
    const std::string_view token = text_.substr(begin, at_ - begin);
    int64_t integer = 0;
    if (whole && token != "-0" && std::from_chars(token.begin(), token.end(), integer).ec == std::errc())
      return Value(integer);
    double number = 0;
    if (std::from_chars(token.begin(), token.end(), number).ec != std::errc()) {
      throw_at(mark, fmt::format("{} does not fit a double. Give a number between 1e-308 and 1e308.", token));
    }
    const bool negative_zero = number == 0 && std::signbit(number);
    if (!whole && !negative_zero && std::trunc(number) == number && std::abs(number) <= kExactIntegers) {
      return Value(static_cast<int64_t>(number));
    }
    return Value(number);
  }

  std::string_view text_;
  std::string_view origin_;
  std::vector<Duplicate>* duplicates_;
  bool hjson_;
  size_t at_ = 0;
  Mark mark_{1, 1};
  int depth_ = 0;
  std::string path_;  // of the value being read
};

}  // namespace

// Texts that are no JSON from the first byte on, and why.
static void refuse_other_texts(std::string_view text, std::string_view origin) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw Error(origin, "is empty. Write a JSON object there.");
  }
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    throw Error(origin, "is in UTF-16. Save it as UTF-8.");
  }
}

Value parse(std::string_view text, std::string_view origin, std::vector<Duplicate>* duplicates, Syntax syntax) {
  refuse_lfs_pointer(text, origin);
  refuse_other_texts(text, origin);
  return Parser(text, origin, duplicates, syntax).document();
}

}  // namespace shoal::json
