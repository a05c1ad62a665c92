// The section "data_types".
#include <fmt/format.h>

#include "config/sections.h"
#include "config/settings.h"

namespace shoal::config {

static std::string check_param_dtype(const Value& value, const Settings& all) {
  if (value.is_null()) return "";
  std::string mode = "fp32";
  if (all.value("fp16.enabled").as_boolean()) mode = "fp16";
  if (all.value("bf16.enabled").as_boolean()) mode = "bf16";
  if (value.as_text() == mode) return "";
  return fmt::format("\"{}\" contradicts the enabled precision, {}. Remove the key, or switch {}.", value.as_text(),
                     mode, value.as_text() == "fp32" ? "fp16 and bf16 off" : value.as_text() + " on");
}

std::vector<Section> data_types_sections() {
  Section types{
      .path = "data_types",
      .meaning = "Element types.",
      .keys = {
          text("grad_accum_dtype", Value())
              .dtype()
              .means(
                  "The dtype that the mean gradient of a step is rounded to, once; micro-steps are added up in fp32 "
                  "before. null: the dtype in which gradients travel. (Where stages 0 and 1 add up a rank's own "
                  "micro-steps first, without shoal.reproducible, it is the dtype of that sum, and null is fp32.) Here "
                  "Shoal deviates from DeepSpeed, which adds up in it.")
              .fills(bound_to([](auto& c) -> auto& { return c.grad_accum_dtype; })),
          text("param_dtype", Value())
              .dtype()
              .means("The dtype of the parameters; only checked against `fp16.enabled` and `bf16.enabled`.")
              .must(check_param_dtype),
          text("buffer_dtype", Value())
              .dtype()
              .means("The dtype to which buffers are cast. null: they keep their own.")
              .is_refused(
                  "is carried out by the package deepspeed only. Remove the key and cast the buffers yourself."),
          list_of_texts("keep_in_fp32_modules")
              .means("Names of buffers, with * for any letters, that stay fp32 whatever buffer_dtype says.")
              .on_auto("those that a model of Hugging Face names itself",
                       [](const ConfigContext&, const Settings&) { return Known(); })
              .has_no_effect("buffers keep their own dtype"),
      }};
  return {std::move(types)};
}

}  // namespace shoal::config
