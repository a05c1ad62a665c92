// The section "fp16": half precision and its loss scale.
#include <fmt/format.h>

#include <cmath>

#include "config/sections.h"
#include "config/settings.h"

namespace shoal::config {

static Binding enabled_binding() {
  return {[](Config& c, const Value& value) {
            c.fp16.enabled = value.as_boolean();
            if (c.fp16.enabled) c.precision = Precision::fp16;
          },
          [](const Config& c) { return Value(c.precision == Precision::fp16); }};
}

static std::string check_smallest_scale(const Value& value, const Settings& all) {
  if (!all.value("fp16.enabled").as_boolean()) return "";
  const double fixed = all.value("fp16.loss_scale").as_number();
  const double first = std::ldexp(1.0, static_cast<int>(all.value("fp16.initial_scale_power").as_integer()));
  if (fixed != 0 || value.as_number() <= first) return "";
  return fmt::format("{} is above the first loss scale, 2^{} = {}. Lower it or raise fp16.initial_scale_power.",
                     value.as_number(), all.value("fp16.initial_scale_power").as_integer(), first);
}

static std::string check_is_fp16(const Value& value, const Settings& all) {
  if (!value.as_boolean() || all.value("fp16.enabled").as_boolean()) return "";
  return "true, and fp16.enabled is false: nothing is in fp16 then. Switch fp16 on, or remove the key.";
}

std::vector<Section> fp16_sections() {
  Section fp16{
      .path = "fp16",
      .meaning = "Half precision with a loss scale.",
      .keys = {
          boolean("enabled", false)
              .means("Parameters and activations in fp16, with a 4-byte master of each weight.")
              .on_auto("true when the caller asks for fp16; else false",
                       [](const ConfigContext& c, const Settings&) -> Known {
                         if (!c.precision) return std::nullopt;
                         return Value(*c.precision == Precision::fp16);
                       })
              .fills(enabled_binding()),
          number("loss_scale", 0.0)
              .at_least(0)
              .at_most(1e30)
              .means("A fixed loss scale. 0: dynamic, by the keys below.")
              .fills(bound_to([](auto& c) -> auto& { return c.fp16.loss_scale; })),
          integer("initial_scale_power", 16)
              .at_least(0)
              .at_most(100)
              .means("The first dynamic loss scale is 2 to this power.")
              .fills(bound_to([](auto& c) -> auto& { return c.fp16.initial_scale_power; })),
          integer("loss_scale_window", 1000)
              .at_least(1)
              .at_most(1e9)
              .in("steps")
              .means("Steps without overflow after which the dynamic loss scale doubles.")
              .fills(bound_to([](auto& c) -> auto& { return c.fp16.loss_scale_window; })),
          integer("hysteresis", 2)
              .at_least(1)
              .at_most(1e9)
              .in("overflows")
              .means("Overflows that are forgiven before the dynamic loss scale halves; 1 halves at the first.")
              .fills(bound_to([](auto& c) -> auto& { return c.fp16.hysteresis; })),
          boolean("consecutive_hysteresis", false)
              .means("Refill the forgiven overflows at every step without one, so that only overflows in a row count.")
              .fills(bound_to([](auto& c) -> auto& { return c.fp16.consecutive_hysteresis; })),
          number("min_loss_scale", 1)
              .above(0)
              .at_most(1e30)
              .means("The smallest dynamic loss scale. An overflow at it stops the run with an error.")
              .fills(bound_to([](auto& c) -> auto& { return c.fp16.min_loss_scale; }))
              .must(check_smallest_scale),
          boolean("auto_cast", false)
              .means("Cast the model's inputs to fp16.")
              .is_refused("is carried out by the package deepspeed only. Remove the key and cast the inputs."),
          boolean("fp16_master_weights_and_grads", false)
              .means(
                  "Keep no master: each update is rounded to the fp16 weight, to nearest even, and one that is smaller "
                  "than half of the weight's last bit is lost. The mean gradient is rounded to fp16 too, unless "
                  "data_types.grad_accum_dtype says otherwise; moments stay fp32. At every stage, with and without "
                  "offload.")
              .fills(bound_to([](auto& c) -> auto& { return c.fp16.master_weights_and_grads; }))
              .must(check_is_fp16),
      }};
  return {std::move(fp16)};
}

}  // namespace shoal::config
