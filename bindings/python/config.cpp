// include/shoal/config.h.
#include "shoal/config.h"

#include "base/json.h"
#include "bindings.h"
#include "config/reader.h"
#include "config/table.h"
#include "plan/from_config.h"

namespace shoal::python {

void bind_config(py::module_& module) {
  py::enum_<Precision>(module, "Precision")
      .value("fp32", Precision::fp32)
      .value("bf16", Precision::bf16)
      .value("fp16", Precision::fp16);

  py::class_<Config>(module, "Config")
      .def_static(
          "from_text",
          [](const std::string& text, int world_size, const std::string& origin) {
            return Config::from_text(text, {.world_size = world_size}, origin);
          },
          py::arg("text"), py::arg("world_size") = 1, py::arg("origin") = "config")
      .def("to_json", &Config::to_json)
      .def_readonly("precision", &Config::precision)
      .def_readonly("gradient_clipping", &Config::gradient_clipping)
      .def_readonly("notices", &Config::notices)
      .def_property_readonly("stage", [](const Config& c) { return c.zero.stage; })
      .def_readonly("inputs_on_host", &Config::inputs_on_host)
      .def_property_readonly("offloads_states",
                             [](const Config& c) { return c.zero.offload_optimizer.tier_in_use() != Tier::device; })
      .def_property_readonly("bf16_moments", [](const Config& c) { return moment_dtype(c) == DType::bf16; })
      .def_property_readonly("narrow_masters", &has_narrow_masters)
      .def_property_readonly("scales_loss", [](const Config& c) { return c.shoal.scale_loss; })
      .def_property_readonly("leaf_seed", [](const Config& c) { return c.shoal.leaf_seed; })
      .def_property_readonly("persistence_threshold",
                             [](const Config& c) { return c.zero.param_persistence_threshold; })
      .def_property_readonly("lr", [](const Config& c) { return c.optimizer.lr; })
      .def_property_readonly("weight_decay", [](const Config& c) { return c.optimizer.weight_decay; })
      .def_property_readonly("betas", [](const Config& c) { return std::pair(c.optimizer.beta1, c.optimizer.beta2); })
      .def_property_readonly("eps", [](const Config& c) { return c.optimizer.eps; })
      .def_property_readonly("train_batch_size", [](const Config& c) { return c.batch.train_batch_size; })
      .def_property_readonly("micro_batch_size", [](const Config& c) { return c.batch.micro_batch_size; })
      .def_property_readonly("accumulation_steps", [](const Config& c) { return c.batch.accumulation_steps; })
      .def_property_readonly("managed_gradient_accumulation",
                             [](const Config& c) { return c.batch.managed_gradient_accumulation; })
      .def_property_readonly("timeout_seconds", [](const Config& c) { return c.shoal.timeout_seconds; });

  py::class_<OptimizerRow>(module, "Optimizer", "An optimizer that the engine carries out.")
      .def_property_readonly(
          "name", [](const OptimizerRow& row) { return std::string(row.name); }, "As configs spell it.")
      .def_property_readonly(
          "state_names",
          [](const OptimizerRow& row) {
            return std::vector<std::string>(row.state_names.begin(), row.state_names.begin() + row.states());
          },
          "What torch calls its states, the first and the second moment of the core.")
      .def(
          "takes", [](const OptimizerRow& row, const std::string& setting) { return row.takes(setting); },
          py::arg("setting"), "Whether the key of optimizer.params is one of its settings.");
  module.def(
      "optimizers", [] { return std::vector<OptimizerRow>(std::begin(kOptimizers), std::end(kOptimizers)); },
      "Every optimizer that the engine carries out.");
  module.def(
      "plain_json",
      [](const std::string& text, const std::string& origin) {
        return json::write(json::parse(text, origin, nullptr, json::Syntax::hjson), 2);
      },
      py::arg("text"), py::arg("origin"), "JSON with comments, or Hjson, as JSON that every reader knows.");
  module.def(
      "explain_unknown",
      [](const std::string& word) {
        return config::explain_unknown(config::table(), *config::table().section(""), word);
      },
      py::arg("word"), "What to do about a word that is no key at the top level of a config.");
  module.def(
      "top_level_keys", [] { return config::table().words_of(*config::table().section("")); },
      "Every name that may stand at the top level of a config.");
}

}  // namespace shoal::python
