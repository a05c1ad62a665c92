// Small text functions that messages are made of: counts with units, the nearest word, joined lists.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

// 1536 -> "1.5 KiB"; exact bytes below 1 KiB.
std::string format_nbytes(uint64_t nbytes);

// 1234567 -> "1,234,567".
std::string format_count(int64_t count);

// {2, 3} -> "[2, 3]".
std::string format_shape(const std::vector<int64_t>& shape);

// The candidate with the smallest edit distance to word, or "" when none is near enough to be a likely typo.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

// Up to the first end of a line: what an error of torch says before its backtrace.
std::string first_line(std::string_view text);

// As one word of a shell, whatever it holds: 'it'\\''s'.
std::string quote_for_shell(std::string_view text);

std::string join(const std::vector<std::string>& parts, std::string_view separator);

// What stands between separators: one part more than there are of them, some may be empty.
std::vector<std::string> split(std::string_view text, char separator);

// A stable 64-bit hash (FNV-1a): equal on every rank and every build.
uint64_t hash_text(std::string_view text, uint64_t seed = 0xcbf29ce484222325ull);

}  // namespace shoal
