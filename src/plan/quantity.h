// Amounts as people write them on a command line: "80GiB", "24GB", "7e9", "7B". Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shoal {

// A number and a unit: B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (of 1024). Throws Error with this place.
size_t parse_nbytes(std::string_view text, std::string_view place);

// A number, or one with K, M, B or T behind it. Throws Error with this place.
int64_t parse_count(std::string_view text, std::string_view place);

// 38500000000 -> "38.50 GB", in the unit (B, kB, MB, GB, TB) that leaves the most meaning; powers of 1000, as papers
// count.
std::string format_decimal_nbytes(double nbytes);

}  // namespace shoal
