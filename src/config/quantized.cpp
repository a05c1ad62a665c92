// The keys of ZeRO++ in "zero_optimization" that say what travels in few bits, and its section "zeropp_loco_param".
#include "config/sections.h"
#include "config/settings.h"

namespace shoal::config {
namespace {

std::string check_weights(const Value& value, const Settings& all) {
  if (!value.as_boolean() || all.value("zero_optimization.stage") == Value(3)) return "";
  return "is about gathers of weights, which only stage 3 makes in a pass. Set stage 3, or remove the key.";
}

std::string check_gradients(const Value& value, const Settings& all) {
  if (!value.as_boolean()) return "";
  const Value stage = all.value("zero_optimization.stage");
  if (stage != Value(2) && stage != Value(3)) {
    return "is about gradients that are cut over ranks, as they are at stages 2 and 3: below, every rank adds up its "
           "micro-steps first and the sums are exact. Set stage 2 or 3, or remove the key.";
  }
  if (all.value("zero_optimization.mics_hierarchical_params_gather") == Value(true)) {
    return "takes a group of mics_shard_size for the ranks of one host, and mics_hierarchical_params_gather says that "
           "a group spans hosts. Remove one of them.";
  }
  if (all.value("shoal.fold_group") != Value(0)) {
    return "adds gradients up by the ranks of a host, and shoal.fold_group by another number. Remove one of them.";
  }
  if (all.value("shoal.reduce").as_text() == "nccl") {
    return "is for sums of ours, and shoal.reduce nccl lets NCCL add. Remove one of them.";
  }
  return "";
}

std::string check_feedback(const Value& value, const Settings& all) {
  if (value.is_null()) return "";
  if (all.value("zero_optimization.zero_quantized_gradients") != Value(true)) {
    return "is about what rounding takes from quantized gradients, and they are not. Set zero_quantized_gradients, or "
           "remove the section.";
  }
  if (all.value("fp16.enabled") == Value(true) || all.value("shoal.scale_loss") == Value(true)) {
    return "keeps errors from step to step, and a loss scale that moves would make them wrong. Train in bf16, or "
           "remove "
           "the section.";
  }
  return "";
}

}  // namespace

std::vector<Key> quantized_keys() {
  return {
      boolean("zero_quantized_weights", false)
          .means("Stage 3 (ZeRO++ qwZ): weights travel in blocks of int8 when they are gathered for a pass: "
                 "half the bytes of bf16. Every rank computes with what comes out of them; masters and checkpoints are "
                 "exact. Small weights (stage3_param_persistence_threshold) are not gathered, and exact. See "
                 "docs/hybrid.md.")
          .must(check_weights)
          .fills(bound_to([](auto& c) -> auto& { return c.zero.quantized_weights; })),
      boolean("zero_quantized_nontrainable_weights", false)
          .means("The same for frozen weights alone. They are kept in their dtype, where DeepSpeed keeps them in int8.")
          .must(check_weights)
          .fills(bound_to([](auto& c) -> auto& { return c.zero.quantized_frozen_weights; })),
      boolean("zero_quantized_gradients", false)
          .means("Stages 2 and 3 (ZeRO++ qgZ): gradients are added up exactly by the ranks of a host (of a "
                 "group, with zero_hpz_partition_size or mics_shard_size), and hosts send each other the sums in "
                 "blocks of shoal.quantized_gradient_bits. With one host all is exact. See docs/hybrid.md.")
          .must(check_gradients)
          .fills(bound_to([](auto& c) -> auto& { return c.zero.quantized_gradients; })),
  };
}

Section loco_section() {
  Section section{
      .path = "zero_optimization.zeropp_loco_param",
      .meaning = "LoCo, with zero_quantized_gradients: what rounding took from a sum is added to later ones.",
      .keys = {
          number("err_beta", Value())
              .at_least(0)
              .below(1)
              .means("The share of an element's error that is kept when a new one comes; the rest is of the new one. "
                     "DeepSpeed's value is 0.8. null: no error feedback.")
              .must(check_feedback)
              .fills(
                  {[](Config& c, const Value& value) {
                     c.zero.error_feedback = value.is_null() ? -1 : value.as_number();
                   },
                   [](const Config& c) { return c.zero.error_feedback < 0 ? Value() : Value(c.zero.error_feedback); }}),
          integer("reset_T", 1024)
              .at_least(1)
              .in("reductions")
              .or_null()
              .means("Errors begin again from zero after so many reductions of a unit, one a micro-step.")
              .must([](const Value& value, const Settings& all) -> std::string {
                if (value.is_null() || !all.value("zero_optimization.zeropp_loco_param.err_beta").is_null()) return "";
                return "says when errors begin anew, and err_beta, which switches them on, is missing. Give err_beta, "
                       "0.8 in DeepSpeed.";
              })
              .fills({[](Config& c, const Value& value) {
                        c.zero.error_reset_steps = value.is_null() ? 1024 : value.as_integer();
                      },
                      [](const Config& c) {
                        return c.zero.error_feedback < 0 ? Value() : Value(c.zero.error_reset_steps);
                      }}),
      }};
  section.nullable = true;
  return section;
}

}  // namespace shoal::config
