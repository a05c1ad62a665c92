// See counter_random.h.
#include "kernels/counter_random.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "base/text.h"

namespace shoal::kernels {

namespace {

constexpr size_t kPairs = 128;                   // pairs of numbers that are made together
constexpr int64_t kChunk = 2 * int64_t{kPairs};  // numbers of them; a counter value gives four

uint32_t high_half(uint64_t product) { return static_cast<uint32_t>(product >> 32); }
uint32_t low_half(uint64_t product) { return static_cast<uint32_t>(product); }

// [Note: functions of our own]
// The library's log, sin and cos are not the same bits in every version and on every processor, and ranks may not share
// one. These use the basic operations only, which IEEE 754 fixes (the build forbids fused ones), and err by about
// 1e-12, far below the rounding to fp32 that follows. They have no branches, so that the compiler can use vectors.

// Natural logarithm of x in (0, 1].
double log_of(double x) {
  constexpr double kLog2 = 0.693147180559945309417;
  constexpr uint64_t kRootHalf = 0x3fe6a09e667f3bcdull;  // the bits of sqrt(0.5)
  // x = m * 2^e with m in [sqrt(0.5), sqrt(2)): the distance of the bits from those of sqrt(0.5) holds e on top.
  const uint64_t distance = std::bit_cast<uint64_t>(x) - kRootHalf;
  const auto exponent = static_cast<int32_t>(static_cast<int64_t>(distance) >> 52);
  const double mantissa = std::bit_cast<double>((distance & 0x000fffffffffffffull) + kRootHalf);
  // log(m) = 2 atanh(s), |s| < 0.172.
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double t = s * s;
  double sum = 1.0 / 15;
  for (const int odd : {13, 11, 9, 7, 5, 3, 1}) sum = sum * t + 1.0 / odd;
  return exponent * kLog2 + 2.0 * s * sum;
}

// Sine and cosine of `turn` / 2^32 of a full turn.
void direction_of(uint32_t turn, double* cos_out, double* sin_out) {
  const uint32_t quarter = (turn + 0x20000000u) >> 30;  // the nearest; 4 is 0
  const auto rest = static_cast<int32_t>(turn - (quarter << 30));
  const double x = rest * (2.0 * std::numbers::pi * 0x1p-32);  // within an eighth of a turn
  const double t = x * x;
  double sin = 1.0;
  for (const double k : {12.0 * 13, 10.0 * 11, 8.0 * 9, 6.0 * 7, 4.0 * 5, 2.0 * 3}) sin = 1.0 - sin * t * (1.0 / k);
  sin *= x;
  double cos = 1.0;
  for (const double k : {13.0 * 14, 11.0 * 12, 9.0 * 10, 7.0 * 8, 5.0 * 6, 3.0 * 4, 1.0 * 2}) {
    cos = 1.0 - cos * t * (1.0 / k);
  }
  const bool swapped = (quarter & 1) != 0;
  const double cos_sign = ((quarter + 1) & 2) != 0 ? -1.0 : 1.0;
  const double sin_sign = (quarter & 2) != 0 ? -1.0 : 1.0;
  *cos_out = cos_sign * (swapped ? sin : cos);
  *sin_out = sin_sign * (swapped ? cos : sin);
}

// Box-Muller: two independent standard normal numbers from two random words, the first of which is kept away from 0.
// Many at a time, stage by stage, for the same reason.
void make_normals(const uint32_t* first, const uint32_t* second, double* normals) {
  std::array<double, kPairs> radius, cos, sin;
  for (size_t i = 0; i < kPairs; ++i) radius[i] = std::sqrt(-2.0 * log_of((first[i] + 0.5) * 0x1p-32));
  for (size_t i = 0; i < kPairs; ++i) direction_of(second[i], &cos[i], &sin[i]);
  for (size_t i = 0; i < kPairs; ++i) {
    normals[2 * i] = radius[i] * cos[i];
    normals[2 * i + 1] = radius[i] * sin[i];
  }
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {high_half(b) ^ counter[1] ^ key[0], low_half(b), high_half(a) ^ counter[3] ^ key[1], low_half(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

uint64_t stream_key(uint64_t seed, std::string_view name) { return hash_text(fmt::format("{} {}", seed, name)); }

void fill_normal(uint64_t key, double standard_deviation, int64_t begin, int64_t numel, float* values) {
  const int64_t end = begin + numel;
  std::array<uint32_t, kPairs> first, second;
  std::array<double, kChunk> normals;
  for (int64_t chunk = begin / kChunk; chunk * kChunk < end; ++chunk) {
    for (size_t pair = 0; pair < kPairs; pair += 2) {
      const uint64_t counter = (static_cast<uint64_t>(chunk) * kPairs + pair) / 2;
      const std::array<uint32_t, 4> bits =
          philox({low_half(counter), high_half(counter), 0, 0}, {low_half(key), high_half(key)});
      first[pair] = bits[0];
      second[pair] = bits[1];
      first[pair + 1] = bits[2];
      second[pair + 1] = bits[3];
    }
    make_normals(first.data(), second.data(), normals.data());
    const int64_t from = std::max(begin, chunk * kChunk);
    const int64_t to = std::min(end, (chunk + 1) * kChunk);
    for (int64_t i = from; i < to; ++i) {
      values[i - begin] = static_cast<float>(standard_deviation * normals[static_cast<size_t>(i - chunk * kChunk)]);
    }
  }
}

void fill_uniform(uint64_t key, double bound, int64_t begin, int64_t numel, float* values) {
  const int64_t end = begin + numel;
  for (int64_t block = begin / 4; block * 4 < end; ++block) {
    const auto counter = static_cast<uint64_t>(block);
    const std::array<uint32_t, 4> bits =
        philox({low_half(counter), high_half(counter), 0, 0}, {low_half(key), high_half(key)});
    const int64_t from = std::max(begin, block * 4), to = std::min(end, block * 4 + 4);
    for (int64_t i = from; i < to; ++i) {
      const double even = (bits[static_cast<size_t>(i - block * 4)] + 0.5) * 0x1p-31 - 1;  // in (-1, 1)
      values[i - begin] = static_cast<float>(bound * even);
    }
  }
}

}  // namespace shoal::kernels
