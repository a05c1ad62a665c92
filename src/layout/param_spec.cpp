// See param_spec.h.
#include "layout/param_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.h"

namespace shoal {

std::string to_text(const std::vector<UnitSpec>& units) {
  std::string text;
  for (const UnitSpec& unit : units) {
    text += fmt::format("unit {} borrows [{}]\n", unit.name, fmt::join(unit.borrows, ","));
    for (const ParamSpec& param : unit.params) {
      text += fmt::format("  {} {} {} {} group {}\n", param.name, format_shape(param.shape), name_of(param.dtype),
                          param.trainable ? "trainable" : "frozen", param.group);
    }
  }
  return text;
}

}  // namespace shoal
