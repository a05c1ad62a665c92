// A digest of a state that no cut shows in: a sum, modulo 2^64, of a number for each element, made of its index and its
// bits. Parts that are digested apart, in any order and on any rank, add up to the digest of the whole. For finding
// where two runs part, not for safety: who wants equal digests of other values can make them.
#pragma once

#include <cstdint>

namespace shoal::kernels {

// Of elements [begin, begin + numel) of a parameter.
uint64_t digest_elements(const float* values, int64_t begin, int64_t numel);

}  // namespace shoal::kernels
