// What a fuzzer makes of an input that is right, or nearly: bytes flipped, taken out and put in, numbers and words put
// in the place of others, parts of two inputs joined, depth. All of it follows from the seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace shoal::testing {

class Mutations {
 public:
  Mutations(std::vector<std::string> corpus, uint64_t seed) : corpus_(std::move(corpus)), random_(seed) {}

  std::string next() {
    std::string input = corpus_[below(corpus_.size())];
    for (size_t changes = 1 + below(4); changes > 0; --changes) change(input);
    return input;
  }

 private:
  static const std::vector<std::string>& words() {
    static const std::vector<std::string> kWords = {"0",
                                                    "-1",
                                                    "1",
                                                    "2",
                                                    "1e308",
                                                    "-1e308",
                                                    "1e-320",
                                                    "1e999",
                                                    "9223372036854775807",
                                                    "-9223372036854775808",
                                                    "9223372036854775808",
                                                    "18446744073709551615",
                                                    "4294967296",
                                                    "2147483648",
                                                    "65536",
                                                    "0.5",
                                                    "1.5",
                                                    "null",
                                                    "true",
                                                    "false",
                                                    "\"\"",
                                                    "\"auto\"",
                                                    "\"x\"",
                                                    "[]",
                                                    "{}",
                                                    "[[]]",
                                                    "[0]",
                                                    "[-1]",
                                                    "\"\\u0000\"",
                                                    "\"\\ud800\"",
                                                    "\xff\xfe",
                                                    "\xc3\x28",
                                                    "NaN",
                                                    "Infinity",
                                                    "//",
                                                    "/*",
                                                    "\"../../x\"",
                                                    "\"/\"",
                                                    ",",
                                                    ":",
                                                    "\"",
                                                    "\\",
                                                    "}",
                                                    "]",
                                                    "\n",
                                                    "\r",
                                                    "\t"};
    return kWords;
  }
  size_t below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }
  const std::string& word() { return words()[below(words().size())]; }

  // A number or a word of the input: where it begins and how long it is.
  std::pair<size_t, size_t> value_in(const std::string& input) {
    const auto is_value = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-';
    };
    if (input.empty()) return {0, 0};
    size_t begin = below(input.size());
    while (begin < input.size() && !is_value(input[begin])) ++begin;
    size_t end = begin;
    while (begin > 0 && is_value(input[begin - 1])) --begin;
    while (end < input.size() && is_value(input[end])) ++end;
    return {begin, end - begin};
  }

  void change(std::string& input) {
    const size_t at = below(input.size() + 1), length = below(std::min<size_t>(input.size() - at, 64) + 1);
    switch (below(10)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        return;
      case 1: input.erase(at, length); return;
      case 2: input.insert(at, word()); return;
      case 3: input.insert(at, input.substr(at, length)); return;
      case 4: input.resize(at); return;
      case 5: {
        const std::string& other = corpus_[below(corpus_.size())];
        const size_t from = below(other.size() + 1);
        input.replace(at, length, other.substr(from, below(128)));
        return;
      }
      case 6: input.insert(at, std::string(1 + below(20000), "[{\"("[below(4)])); return;
      case 7:
        for (size_t i = 0; i < 8 && at + i < input.size(); ++i) input[at + i] = static_cast<char>(random_());
        return;
      default: {
        const auto [begin, count] = value_in(input);
        input.replace(begin, count, word());
        return;
      }
    }
  }

  std::vector<std::string> corpus_;
  std::mt19937_64 random_;
};

}  // namespace shoal::testing
