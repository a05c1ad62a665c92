// See quantity.h.
#include "base/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "shoal/error.h"

namespace shoal {

namespace {

struct Amount {
  double value = 0;
  std::string_view unit = {};  // what stands behind it, without spaces
  std::string mistake = {};
};

Amount split_amount(std::string_view text, std::string_view example) {
  Amount amount;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount.value);
  if (error != std::errc() || !std::isfinite(amount.value) || amount.value <= 0) {
    amount.mistake = fmt::format("\"{}\" is not an amount. Give one like {}.", text, example);
    return amount;
  }
  amount.unit = text.substr(static_cast<size_t>(end - text.data()));
  while (amount.unit.starts_with(' ')) amount.unit.remove_prefix(1);
  return amount;
}

bool same_letters(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [&](char x, char y) { return lower(x) == lower(y); });
}

using Unit = std::pair<std::string_view, double>;

// 0: no such unit.
double factor_of(std::string_view unit, std::initializer_list<Unit> units) {
  for (const auto& [name, factor] : units) {
    if (same_letters(unit, name)) return factor;
  }
  return 0;
}

std::string unknown_unit(std::string_view text, std::string_view units) {
  return fmt::format("\"{}\" ends with a unit that is not known. Use {}.", text, units);
}

}  // namespace

ReadNbytes read_nbytes(std::string_view text) {
  constexpr double kKi = 1024, kMi = kKi * kKi, kGi = kKi * kMi, kTi = kKi * kGi;
  const Amount amount = split_amount(text, "80GiB or 24GB");
  if (!amount.mistake.empty()) return {0, amount.mistake};
  const double factor = factor_of(amount.unit, {{"B", 1},
                                                {"kB", 1e3},
                                                {"MB", 1e6},
                                                {"GB", 1e9},
                                                {"TB", 1e12},
                                                {"KiB", kKi},
                                                {"MiB", kMi},
                                                {"GiB", kGi},
                                                {"TiB", kTi},
                                                {"K", kKi},
                                                {"M", kMi},
                                                {"G", kGi},
                                                {"T", kTi}});
  if (factor == 0) return {0, unknown_unit(text, "B, kB, MB, GB, TB, KiB, MiB, GiB or TiB")};
  const double nbytes = std::round(amount.value * factor);
  if (nbytes > 1e18) return {0, fmt::format("\"{}\" is more memory than there is. Correct it.", text)};
  return {static_cast<int64_t>(nbytes), ""};
}

size_t parse_nbytes(std::string_view text, std::string_view place) {
  const ReadNbytes read = read_nbytes(text);
  if (!read.mistake.empty()) throw Error(place, read.mistake);
  return static_cast<size_t>(read.nbytes);
}

int64_t parse_count(std::string_view text, std::string_view place) {
  const Amount amount = split_amount(text, "7e9 or 7B");
  if (!amount.mistake.empty()) throw Error(place, amount.mistake);
  const double factor = factor_of(amount.unit, {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}});
  if (factor == 0) throw Error(place, unknown_unit(text, "K, M, B or T"));
  const double count = std::round(amount.value * factor);
  if (count < 1 || count > 1e15) throw Error(place, fmt::format("{} is not from 1 to 1e15. Correct it.", text));
  return static_cast<int64_t>(count);
}

std::string format_decimal_nbytes(double nbytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (nbytes >= 1000 && unit + 1 < kUnits.size()) {
    nbytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", nbytes) : fmt::format("{:.2f} {}", nbytes, kUnits[unit]);
}

}  // namespace shoal
