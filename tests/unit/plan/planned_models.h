// Models to plan in tests: shapes only.
#pragma once

#include <string>

#include "plan/stage_plans.h"

namespace shoal::testing {

// Units of two square matrices and a small vector, in one dtype.
inline PlanSubject stack(int units, int64_t side, DType dtype) {
  PlanSubject subject;
  subject.name = "stack";
  for (int unit = 0; unit < units; ++unit) {
    const std::string name = "u" + std::to_string(unit);
    subject.units.push_back({.name = name,
                             .params = {{.name = name + ".a", .shape = {side, side}, .dtype = dtype},
                                        {.name = name + ".b", .shape = {side, side}, .dtype = dtype},
                                        {.name = name + ".v", .shape = {side}, .dtype = dtype}},
                             .borrows = {}});
  }
  return subject;
}

inline Config config_in(Precision precision, int stage = 3) {
  Config config;
  config.precision = precision;
  config.zero.stage = stage;
  return config;
}

}  // namespace shoal::testing
