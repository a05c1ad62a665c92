// Random numbers addressed by index: element i of a stream is a function of the stream's key and i alone. Any
// rank can therefore make any range of a parameter and gets the same bits as every other, on any machine. Initial
// weights come from here; dropout does not, it draws from the rank's own generator.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace shoal::kernels {

// Philox 4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): 128 random bits for
// each 128-bit counter and 64-bit key.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The stream of one parameter: the run's seed and the parameter's name.
uint64_t stream_key(uint64_t seed, std::string_view name);

// values[j] = standard_deviation * normal(key, begin + j): a block of the generator gives four numbers by Box-Muller in
// double precision, of which the farthest are 6.7 standard deviations out.
void fill_normal(uint64_t key, double standard_deviation, int64_t begin, int64_t numel, float* values);

// values[j] is even in [-bound, bound]: a block of the generator gives four numbers.
void fill_uniform(uint64_t key, double bound, int64_t begin, int64_t numel, float* values);

}  // namespace shoal::kernels
