// The section "bf16", also spelled "bfloat16".
#include "config/sections.h"
#include "config/settings.h"

namespace shoal::config {

static std::string check_one_precision(const Value& value, const Settings& all) {
  if (!value.as_boolean() || !all.value("fp16.enabled").as_boolean()) return "";
  return "true, and fp16.enabled is true as well. Switch one of them off.";
}

static std::string check_is_bf16(const Value& value, const Settings& all) {
  if (!value.as_boolean() || all.value("bf16.enabled").as_boolean()) return "";
  return "true, and bf16.enabled is false: nothing is in bf16 then. Switch bf16 on, or remove the key.";
}

std::vector<Section> bf16_sections() {
  Section bf16{
      .path = "bf16",
      .meaning = "bfloat16 with a split fp32 master.",
      .keys = {
          boolean("enabled", false)
              .means("Parameters and activations in bf16; 16 more bits a weight keep the exact fp32 master.")
              .on_auto("true when the caller asks for bf16; else false",
                       [](const ConfigContext& c, const Settings&) -> Known {
                         if (!c.precision) return std::nullopt;
                         return Value(*c.precision == Precision::bf16);
                       })
              .fills({[](Config& c, const Value& value) {
                        if (value.as_boolean()) c.precision = Precision::bf16;
                      },
                      [](const Config& c) { return Value(c.precision == Precision::bf16); }})
              .must(check_one_precision),
          boolean("immediate_grad_update", false)
              .means("Add each gradient to the accumulated one as soon as it is ready.")
              .has_no_effect("gradients are always taken as soon as they are ready"),
          boolean("check_grad_overflow", true)
              .means(
                  "Skip the step when a gradient is not finite. false: in bf16 the step is taken all the same, without "
                  "clipping; weights whose gradient is not finite are lost. In fp32 and fp16 such a step is always "
                  "skipped.")
              .fills(bound_to([](auto& c) -> auto& { return c.check_grad_overflow; })),
          boolean("bf16_master_weights_and_grads", false)
              .means(
                  "Keep no master: each update is rounded to the bf16 weight, to nearest even, and one that is smaller "
                  "than half of the weight's last bit is lost. The mean gradient is rounded to bf16 too, unless "
                  "data_types.grad_accum_dtype says otherwise. At every stage, with and without offload.")
              .fills(bound_to([](auto& c) -> auto& { return c.bf16_masters; }))
              .must(check_is_bf16),
          boolean("bf16_optimizer_states", false)
              .means("Keep the optimizer's moments in bf16; each update is computed in fp32 and rounded once. At every "
                     "stage and with every optimizer, with exact masters too, where DeepSpeed takes it with "
                     "bf16_master_weights_and_grads only.")
              .fills(bound_to([](auto& c) -> auto& { return c.bf16_optimizer_states; }))
              .must(check_is_bf16),
      }};
  // People copy them from fp16; DeepSpeed took them before its version 0.19.
  for (const char* name : {"loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis",
                           "consecutive_hysteresis", "min_loss_scale"}) {
    bf16.keys.push_back(anything(name).means("A key of `fp16`.").has_no_effect("bf16 needs no loss scale"));
  }
  bf16.aliases = {"bfloat16"};
  return {std::move(bf16)};
}

}  // namespace shoal::config
