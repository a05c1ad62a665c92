// See quantized_text.h.
#include "plan/quantized_text.h"

#include <fmt/format.h>

#include <vector>

#include "base/text.h"
#include "plan/from_config.h"
#include "schedule/route.h"

namespace shoal {

bool quantizes_gradients(const ModelLayout& layout, const Config& config) {
  const GradientOptions options = gradient_options(config);
  for (const UnitLayout& unit : layout.units) {
    for (const FlatLayout& flat : unit.flats) {
      if (!flat.trainable || flat.numel == 0) continue;
      if (routes_of(flat, options, layout.mesh).reduce.back().is_quantized()) return true;
    }
  }
  return false;
}

std::string quantized_text(const ModelLayout& layout, const Config& config) {
  const ZeroConfig& zero = config.zero;
  std::vector<std::string> travels, exact;
  bool keeps_errors = false;  // which no checkpoint has
  if (zero.quantized_weights || zero.quantized_frozen_weights) {
    const char* what = zero.quantized_weights ? "weights" : "frozen weights";
    if (quantizes_weights(layout, shard_options(config))) {
      travels.push_back(fmt::format("{} are gathered as int8", what));
    } else {
      exact.push_back(fmt::format("{} are exact, none are gathered", what));
    }
  }
  if (zero.quantized_gradients) {
    if (quantizes_gradients(layout, config)) {
      travels.push_back(fmt::format("sums of gradients go between hosts as int{}{}",
                                    config.shoal.quantized_gradient_bits,
                                    zero.error_feedback >= 0 ? " with error feedback" : ""));
      keeps_errors = zero.error_feedback >= 0;
    } else {
      exact.push_back("gradients are exact, as none go between hosts");
    }
  }
  std::string text = join(travels, ", ");
  if (!travels.empty()) {
    text += ": repeatable, equal at every stage that has it, and not the bits of an exact run";
    if (keeps_errors) text += "; a run that is resumed has other bits than one that goes on";
  }
  if (!exact.empty()) text += (text.empty() ? "" : "; ") + join(exact, ", ");
  return text;
}

}  // namespace shoal
