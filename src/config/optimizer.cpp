// The section "optimizer": its type, and the parameters that each type takes.
#include <fmt/format.h>

#include "base/text.h"
#include "config/sections.h"
#include "config/settings.h"

namespace shoal::config {
namespace {

using Types = std::vector<std::pair<std::string, Value>>;

Value pair_of(double first, double second) { return json::Array{Value(first), Value(second)}; }

// The same default for each of these types.
Types shared(const std::vector<std::string>& names, const Value& fallback) {
  Types types;
  for (const std::string& name : names) types.emplace_back(name, fallback);
  return types;
}

const std::vector<std::string> kAdams = {"AdamW", "Adam"};
const std::vector<std::string> kOfTorch = {"AdamW", "Adam", "SGD", "Adagrad"};  // torch has a class of this name

// The optimizers of which `holds` is true.
std::vector<std::string> optimizers_where(bool (*holds)(const OptimizerRow&)) {
  std::vector<std::string> names;
  for (const OptimizerRow& row : kOptimizers) {
    if (holds(row)) names.emplace_back(row.name);
  }
  return names;
}

std::vector<std::string> every_optimizer() {
  return optimizers_where([](const OptimizerRow&) { return true; });
}

// The optimizers whose rows name the key, each with its default.
Types who_takes(const Key& key) {
  Types types;
  for (const OptimizerRow& row : kOptimizers) {
    for (const OptimizerSetting& setting : row.settings) {
      if (setting.name != key.name) continue;
      types.emplace_back(row.name, setting.fallback ? Value(*setting.fallback) : key.fallback);
    }
  }
  return types;
}

Binding betas_binding() {
  return {[](Config& c, const Value& value) {
            c.optimizer.beta1 = value.as_array()[0].as_number();
            c.optimizer.beta2 = value.as_array()[1].as_number();
          },
          [](const Config& c) { return pair_of(c.optimizer.beta1, c.optimizer.beta2); }};
}

std::optional<Value> betas_of(const ConfigContext& context) {
  if (!context.beta1 || !context.beta2) return std::nullopt;
  return pair_of(*context.beta1, *context.beta2);
}

// "Adam" decouples weight decay unless it is told not to; kind `adam` stands for the coupled form alone.
Binding adam_w_mode_binding() {
  return {[](Config& c, const Value& value) {
            if (value.as_boolean()) c.optimizer.kind = OptimizerKind::adamw;
          },
          [](const Config& c) { return Value(c.optimizer.kind == OptimizerKind::adamw); }};
}

std::string check_adam_w_mode(const Value& value, const Settings& all) {
  if (value.as_boolean() || all.value("optimizer.type").as_text() != "AdamW") return "";
  return "false contradicts the type AdamW. Remove the key, or use the type \"Adam\".";
}

std::string check_nesterov(const Value& value, const Settings& all) {
  if (!value.as_boolean()) return "";
  const double momentum = all.value("optimizer.params.momentum").as_number();
  const double dampening = all.value("optimizer.params.dampening").as_number();
  if (momentum > 0 && dampening == 0) return "";
  return fmt::format(
      "true needs a momentum above 0 and no dampening; they are {} and {}. Set them so, or remove nesterov.", momentum,
      dampening);
}

std::string check_coeffs(const Value& value, const Settings& all) {
  const double most = all.value("optimizer.params.max_coeff").as_number();
  if (value.as_number() <= most) return "";
  return fmt::format("{} is above max_coeff, {}. Give a smaller min_coeff.", value.as_number(), most);
}

// Some optimizers pass over a parameter twice, and its states and weights must be at hand both times.
std::string check_by_parameter(const Value& value, const Settings& all) {
  const OptimizerRow* row = find_optimizer(value.as_text());
  if (row == nullptr || !row->by_parameter) return "";
  const auto refusal = [&](const std::string& key, const std::string& setting) {
    return fmt::format("{} passes over each parameter twice, which {} {} does not allow yet. Set {} to \"{}\".",
                       row->name, key, all.value(key).as_text(), key, setting);
  };
  for (const char* section : {"offload_optimizer", "offload_param"}) {
    const std::string key = fmt::format("zero_optimization.{}.device", section);
    if (all.value(key).as_text() != "none") return refusal(key, "none");
  }
  if (all.value("shoal.placement").as_text() != "config") return refusal("shoal.placement", "config");
  if (all.value("shoal.defer_update").as_text() == "on") return refusal("shoal.defer_update", "off");
  return "";
}

// Which optimizers take them is said by their rows in shoal/optimizer.h.
std::vector<Key> carried_out_keys() {
  const std::string caller = "the caller's; else the default";
  const auto decoupled = optimizers_where([](const OptimizerRow& row) { return row.decouples_decay; });
  return {
      number("lr", 1e-3)
          .at_least(0)
          .means("The learning rate.")
          .on_auto(caller, [](const ConfigContext& c, const Settings&) { return Known(c.lr); })
          .fills(bound_to([](auto& c) -> auto& { return c.optimizer.lr; })),
      pair_of_numbers("betas", pair_of(0.9, 0.999))
          .at_least(0)
          .below(1)
          .means("How slowly the moments follow the gradient.")
          .on_auto(caller, [](const ConfigContext& c, const Settings&) { return betas_of(c); })
          .fills(betas_binding()),
      number("eps", 1e-8)
          .at_least(0)
          .means("Added to the root of the second moment.")
          .on_auto(caller, [](const ConfigContext& c, const Settings&) { return Known(c.eps); })
          .fills(bound_to([](auto& c) -> auto& { return c.optimizer.eps; })),
      number("weight_decay", 0.0)
          .at_least(0)
          .means(fmt::format("How strongly weights shrink: decoupled from the gradient ({}), or added to it.",
                             join(decoupled, ", ")))
          .on_auto(caller, [](const ConfigContext& c, const Settings&) { return Known(c.weight_decay); })
          .fills(bound_to([](auto& c) -> auto& { return c.optimizer.weight_decay; })),
      boolean("bias_correction", true).means("Correct the moments for their start at zero.").fills(bound_to([
      ](auto& c) -> auto& { return c.optimizer.bias_correction; })),
      boolean("adam_w_mode", true)
          .means("Decouple weight decay from the gradient. As in DeepSpeed, \"Adam\" means AdamW unless this is false.")
          .fills(adam_w_mode_binding())
          .must(check_adam_w_mode),
      number("momentum", 0.0).at_least(0).means("The share of the last update that is kept.").fills(bound_to([
      ](auto& c) -> auto& { return c.optimizer.momentum; })),
      number("dampening", 0.0).means("The share of the gradient that momentum leaves out.").fills(bound_to([
      ](auto& c) -> auto& { return c.optimizer.dampening; })),
      boolean("nesterov", false)
          .means("Look ahead along the momentum.")
          .fills(bound_to([](auto& c) -> auto& { return c.optimizer.nesterov; }))
          .must(check_nesterov),
      number("max_coeff", 10.0).at_least(0).means("The largest trust ratio.").fills(bound_to([](auto& c) -> auto& {
        return c.optimizer.max_coeff;
      })),
      number("min_coeff", 0.01)
          .at_least(0)
          .means("The smallest trust ratio.")
          .fills(bound_to([](auto& c) -> auto& { return c.optimizer.min_coeff; }))
          .must(check_coeffs),
      boolean("eps_inside_sqrt", false).means("Add eps to the second moment, not to its root.").fills(bound_to([
      ](auto& c) -> auto& { return c.optimizer.eps_inside_sqrt; })),
  };
}

// Of fp16 masters DeepSpeed keeps fp16 moments, and such a run is lost at once.
std::string check_fp32_states(const Value& value, const Settings& all) {
  if (value.as_boolean() || !all.value("fp16.fp16_master_weights_and_grads").as_boolean()) return "";
  return "false keeps the moments in fp16, beside fp16 masters: a square below 6e-8 is zero there, and the update "
         "divides "
         "by its root. Remove the key, or use bf16 with bf16_optimizer_states.";
}

std::string warn_of_fp32_states(const Value& value, const Settings& all) {
  if (value.as_boolean() || all.value("bf16.bf16_master_weights_and_grads").as_boolean()) return "";
  if (all.value("bf16.bf16_optimizer_states").as_boolean()) return "";
  return "false changes nothing: moments have the dtype of the masters then, which is fp32, as in DeepSpeed. "
         "bf16.bf16_optimizer_states keeps them in bf16";
}

std::vector<Key> other_keys() {
  const std::string one_pass = "every update is one fused pass over the shard";
  const auto with_states = optimizers_where([](const OptimizerRow& row) { return !row.states_need_momentum; });
  return {
      boolean("torch_adam", false)
          .of_types(shared(kAdams, false))
          .means("Use torch's Adam.")
          .has_no_effect(one_pass + ", by the same formula; the default weight decay stays 0"),
      boolean("fused", false)
          .or_null()
          .of_types(shared(kOfTorch, false))
          .means("Use torch's fused form.")
          .has_no_effect(one_pass),
      boolean("foreach", false)
          .or_null()
          .of_types(shared(kOfTorch, false))
          .means("Use torch's form over lists of tensors.")
          .has_no_effect(one_pass),
      boolean("set_grad_none", true)
          .of_types(shared(kAdams, true))
          .means("Drop gradients instead of zeroing them.")
          .has_no_effect("gradients live in the engine's flats, which are reused"),
      boolean("amsgrad", false)
          .of_types(shared({"AdamW", "Adam", "Adagrad"}, false))
          .means("Divide by the largest second moment so far.")
          .is_refused("is not supported yet. Remove the key, or set torch_adam to true in the package deepspeed."),
      boolean("maximize", false)
          .of_types(shared(kOfTorch, false))
          .means("Climb instead of descend.")
          .is_refused("is not supported yet. Remove the key, and change the sign of the loss."),
      boolean("fp32_optimizer_states", true)
          .of_types(shared(with_states, true))
          .means("Keep the moments in fp32. false: in the dtype of the masters.")
          .fills(bound_to([](auto& c) -> auto& { return c.optimizer.fp32_states; }))
          .must(check_fp32_states)
          .warns(warn_of_fp32_states),
      number("lr_decay", 0.0)
          .of_types(shared({"Adagrad"}, 0.0))
          .means("Let the learning rate fall.")
          .is_refused("is not supported yet. Set it to 0 and use a scheduler."),
      number("initial_accumulator_value", 0.0)
          .of_types(shared({"Adagrad"}, 0.0))
          .means("Where the sum of squares starts.")
          .is_refused(),
      number("max_grad_norm", Value())
          .of_types(shared(every_optimizer(), Value()))
          .means("Not a parameter here.")
          .is_refused("does not belong here. Write \"gradient_clipping\" at the top level instead."),
  };
}

}  // namespace

std::vector<Section> optimizer_sections() {
  Section optimizer{.path = "optimizer",
                    .meaning = "The update of the weights.",
                    .keys = {
                        text("type", "AdamW")
                            .one_of(every_optimizer())
                            .not_yet({"Muon", "OneBitAdam", "ZeroOneAdam", "OneBitLamb", "MuAdam", "MuAdamW", "MuSGD"})
                            .means("The optimizer; letter case does not matter.")
                            .must(check_by_parameter)
                            .fills(bound_to_choice(
                                [](auto& c) -> auto& { return c.optimizer.kind; }, every_optimizer())),
                        boolean("legacy_fusion", false)
                            .means("DeepSpeed's older mixed precision optimizer.")
                            .is_refused("is not supported: there is one way of mixed precision. Remove the key."),
                        boolean("torch_adam", false)
                            .means("Nothing, in DeepSpeed either: it belongs into params.")
                            .has_no_effect("DeepSpeed reads it inside optimizer.params only, and passes over it here"),
                    }};
  Section params{.path = "optimizer.params", .meaning = "The parameters of the optimizer's type.", .keys = {}};
  params.type_key = "optimizer.type";
  for (Key& key : carried_out_keys()) params.keys.push_back(key.of_types(who_takes(key)));
  for (Key& key : other_keys()) params.keys.push_back(std::move(key));
  return {std::move(optimizer), std::move(params)};
}

}  // namespace shoal::config
