// Well-spread 64-bit numbers from others: orders of samples, seeds and digests are made of it. Equal on every machine.
#pragma once

#include <cstdint>

namespace shoal {

// The finisher of SplitMix64 (Steele, Lea, Flood 2014): one to one.
constexpr uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Of a key and a value; for one key, one to one in the value.
constexpr uint64_t mixed(uint64_t key, uint64_t value) { return mixed(mixed(key) ^ value); }

}  // namespace shoal
