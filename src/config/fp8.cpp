// The section "fp8": 8-bit matmuls. Ours; DeepSpeed has none of this name.
#include "config/sections.h"
#include "config/settings.h"

namespace shoal::config {

static std::string check_bf16(const Value& value, const Settings& all) {
  if (!value.as_boolean() || all.value("bf16.enabled").as_boolean()) return "";
  return "true, and bf16.enabled is false. Switch bf16 on: what is not multiplied in fp8 stays in bf16.";
}

std::vector<Section> fp8_sections() {
  const std::vector<std::string> recipes = {"tensorwise", "rowwise"};
  Section section{
      .path = "fp8",
      .meaning = "8-bit matmuls in the blocks of the native models; head and embedding stay in bf16.",
      .keys = {
          boolean("enabled", false)
              .means("Multiply activations and weights as e4m3 and gradients as e5m2. Needs a GPU of compute "
                     "capability 8.9 or later.")
              .fills(bound_to([](auto& c) -> auto& { return c.fp8.enabled; }))
              .must(check_bf16),
          text("recipe", "tensorwise")
              .one_of(recipes)
              .means("tensorwise: one scale a tensor, from its largest magnitude. rowwise: one for each row "
                     "and column of what is multiplied.")
              .fills(bound_to_choice(
                  [](auto& c) -> auto& { return c.fp8.recipe; }, recipes)),
      }};
  return {std::move(section)};
}

}  // namespace shoal::config
