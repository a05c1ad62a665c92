// See quantity.h.
#include "plan/quantity.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "shoal/error.h"

namespace shoal {

namespace {

struct Number {
  double value = 0;
  std::string_view unit;  // what stands behind it, without spaces
};

Number split_number(std::string_view text, std::string_view place, std::string_view example) {
  Number number;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number.value);
  if (error != std::errc() || !std::isfinite(number.value) || number.value <= 0) {
    throw Error(place, fmt::format("\"{}\" is not an amount. Give one like {}.", text, example));
  }
  number.unit = text.substr(static_cast<size_t>(end - text.data()));
  while (number.unit.starts_with(' ')) number.unit.remove_prefix(1);
  return number;
}

using Unit = std::pair<std::string_view, double>;

double scale(const Number& number, std::string_view text, std::string_view place, std::string_view units_text,
             std::initializer_list<Unit> units) {
  for (const auto& [name, factor] : units) {
    if (number.unit == name) return std::round(number.value * factor);
  }
  throw Error(place, fmt::format("\"{}\" ends with a unit that is not known. Use {}.", text, units_text));
}

}  // namespace

size_t parse_nbytes(std::string_view text, std::string_view place) {
  const Number number = split_number(text, place, "80GiB or 24GB");
  constexpr double kKi = 1024;
  const double nbytes = scale(number, text, place, "B, kB, MB, GB, TB, KiB, MiB, GiB or TiB",
                              {{"B", 1},
                               {"kB", 1e3},
                               {"KB", 1e3},
                               {"MB", 1e6},
                               {"GB", 1e9},
                               {"TB", 1e12},
                               {"KiB", kKi},
                               {"MiB", kKi * kKi},
                               {"GiB", kKi * kKi * kKi},
                               {"TiB", kKi * kKi * kKi * kKi}});
  if (nbytes > 1e18) throw Error(place, fmt::format("\"{}\" is more memory than there is. Correct it.", text));
  return static_cast<size_t>(nbytes);
}

int64_t parse_count(std::string_view text, std::string_view place) {
  const Number number = split_number(text, place, "7e9 or 7B");
  const double count =
      scale(number, text, place, "K, M, B or T", {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}});
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
