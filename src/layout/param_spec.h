// What the layout needs to know of a model: names, shapes and dtypes of its parameters, unit by unit. No tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/dtype.h"

namespace shoal {

struct ParamSpec {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::f32;
  bool trainable = true;
  int group = 0;  // index of the parameter group (learning rate, weight decay)

  int64_t numel() const {
    int64_t product = 1;
    for (const int64_t extent : shape) product *= extent;
    return product;
  }
};

struct UnitSpec {
  std::string name;
  std::vector<ParamSpec> params;
  std::vector<int> borrows;  // other units whose parameters this one uses too (tied weights)
};

// A text of everything above: equal texts mean equal models. Ranks compare its hash.
std::string to_text(const std::vector<UnitSpec>& units);

}  // namespace shoal
