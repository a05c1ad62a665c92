// The places that a parameter's first values come from: one number, random numbers, a file, several tensors of one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "shoal/unit.h"

namespace shoal::models {

// How a parameter without a file begins.
struct Init {
  enum class Kind : uint8_t { constant, normal, uniform };
  Kind kind = Kind::constant;
  double value = 0;  // the number; or the standard deviation around 0; or the bound on both sides of 0
  // Elements that begin at 0 all the same: the row of a padding token.
  int64_t zero_begin = 0, zero_numel = 0;

  static Init constant(double value) { return {Kind::constant, value, 0, 0}; }
  static Init normal(double standard_deviation) { return {Kind::normal, standard_deviation, 0, 0}; }
  static Init uniform(double bound) { return {Kind::uniform, bound, 0, 0}; }
  Init with_zeros(int64_t begin, int64_t numel) const { return {kind, value, begin, numel}; }
};

// `name` and `seed` choose the random numbers.
std::shared_ptr<const ValueSource> make_initial_values(const Init& init, uint64_t seed, const std::string& name);
// The tensor of this name in the file, as fp32.
std::shared_ptr<const ValueSource> make_file_values(std::shared_ptr<const SafetensorsReader> file, std::string name);

// Elements [begin, begin + numel) of a parameter.
struct ValuePart {
  int64_t begin = 0;
  int64_t numel = 0;
  std::shared_ptr<const ValueSource> values;
};
// The parts in their order; together they are the whole parameter.
std::shared_ptr<const ValueSource> make_joined_values(std::vector<ValuePart> parts);

}  // namespace shoal::models
