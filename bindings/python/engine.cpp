// include/shoal/engine.h, unit.h and engine_state.h.
#include "shoal/engine.h"

#include <pybind11/functional.h>
#include <torch/csrc/utils/pybind.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "plan/from_config.h"
#include "shoal/device.h"
#include "shoal/error.h"
#include "tensors.h"

namespace shoal::python {

namespace {

using Released = py::call_guard<py::gil_scoped_release>;

// (name, [(name, tensor, group, keep_dtype), ...])
using ParamTuple = std::tuple<std::string, at::Tensor, int, bool>;
using UnitTuple = std::pair<std::string, std::vector<ParamTuple>>;

std::vector<Unit> to_units(const std::vector<UnitTuple>& tuples) {
  std::vector<Unit> units;
  for (const auto& [name, params] : tuples) {
    Unit unit{name, {}};
    for (const auto& [param_name, tensor, group, keep_dtype] : params) {
      unit.params.push_back({.name = param_name, .tensor = tensor, .group = group, .keep_dtype = keep_dtype});
    }
    units.push_back(std::move(unit));
  }
  return units;
}

// The modules of Python run as they are.
void refuse_what_only_the_trainer_does(const Config& config) {
  if (config.fp8.enabled) {
    throw Error("config fp8.enabled", "is carried out by `shoal train` alone, not by modules of Python. Leave it out.");
  }
  if (config.shoal.tf32) {
    throw Error("config shoal.tf32", "is for `shoal train`. In Python set torch.backends.cuda.matmul.allow_tf32.");
  }
}

std::shared_ptr<Engine> make_engine(const std::vector<UnitTuple>& units, const Config& config, Group& world,
                                    const std::vector<std::pair<double, double>>& groups, uint64_t seed,
                                    bool broadcast_weights, at::Device device) {
  EngineOptions options;
  options.device = device;
  options.groups.clear();
  for (const auto& [lr, weight_decay] : groups) options.groups.push_back({lr, weight_decay});
  options.seed = seed;
  options.broadcast_weights = broadcast_weights;
  options.backward_from_outside = true;
  std::vector<Unit> made = to_units(units);
  refuse_what_only_the_trainer_does(config);
  py::gil_scoped_release without_gil;
  const DType dtype = dtype_of(config.precision);
  const std::string products = prepare_products(device, dtype);
  static std::array<std::atomic<bool>, 3> said;  // once a process and dtype, as the change itself
  if (!products.empty() && world.rank() == 0 && !said[static_cast<size_t>(dtype)].exchange(true))
    fmt::print(stderr, "shoal: {}\n", products);
  return std::make_shared<Engine>(std::move(made), config, world, options);
}

void enter(Engine& engine, int unit, const py::tuple& args, const py::dict& kwargs) {
  std::vector<at::Tensor> inputs;
  collect_tensors(args, inputs);
  collect_tensors(kwargs, inputs);
  py::gil_scoped_release without_gil;
  engine.hooks().enter(unit, inputs);
}

void leave(Engine& engine, int unit, const py::object& output) {
  std::vector<at::Tensor> outputs;
  collect_tensors(output, outputs);
  py::gil_scoped_release without_gil;
  engine.hooks().exit(unit, outputs);
}

void read_outside_uses(Engine& engine, int unit, const py::tuple& args, const py::dict& kwargs) {
  std::vector<at::Tensor> inputs;
  collect_tensors(args, inputs);
  collect_tensors(kwargs, inputs);
  py::gil_scoped_release without_gil;
  engine.hooks().read_outside_uses(unit, inputs);
}

// What this rank owns of one state of a parameter, as (begin, fp32 values).
using Runs = std::vector<std::pair<int64_t, at::Tensor>>;

Runs owned_runs(const Engine& engine, StateKind kind, int param) {
  Runs found;
  for (const StateRun& run : engine.state().owned()) {
    if (run.kind != kind || run.param != param) continue;
    at::Tensor values = at::empty({run.numel}, at::kFloat);
    engine.state().read(run, values.mutable_data_ptr<float>());
    found.emplace_back(run.begin, std::move(values));
  }
  return found;
}

Runs gradient_runs(Engine& engine, int param) {
  Runs found;
  for (const StateRun& run : engine.state().owned_gradients()) {
    if (run.param != param) continue;
    at::Tensor values = at::empty({run.numel}, at::kFloat);
    engine.state().read_gradient(run, values.mutable_data_ptr<float>());
    found.emplace_back(run.begin, std::move(values));
  }
  return found;
}

// The whole of a parameter, as fp32 in host memory.
at::Tensor whole_values(const Engine& engine, int param, const at::Tensor& whole) {
  const ParamInfo& info = engine.state().params().at(static_cast<size_t>(param));
  int64_t numel = 1;
  for (const int64_t extent : info.shape) numel *= extent;
  if (whole.numel() != numel) {
    throw Error(
        "state of " + info.name,
        fmt::format("the values have {} elements and the parameter {}. Pass them whole.", whole.numel(), numel));
  }
  return whole.detach().to(at::kCPU, at::kFloat).contiguous();
}

// Writes what this rank keeps of a parameter's state, from the whole of it.
void write_param(Engine& engine, StateKind kind, int param, const at::Tensor& whole) {
  const at::Tensor values = whole_values(engine, param, whole);
  for (const StateRun& run : engine.state().kept()) {
    if (run.param == param && run.kind == kind) engine.state().write(run, values.const_data_ptr<float>() + run.begin);
  }
}

// The same between the micro-steps of a step too.
void edit_param(Engine& engine, StateKind kind, int param, const at::Tensor& whole) {
  const at::Tensor values = whole_values(engine, param, whole);
  for (const StateRun& run : engine.state().kept()) {
    if (run.param == param && run.kind == kind) engine.state().edit(run, values.const_data_ptr<float>() + run.begin);
  }
}

// The same of its mean gradient, with the loss scale.
void write_gradient(Engine& engine, int param, const at::Tensor& whole) {
  const ParamInfo& info = engine.state().params().at(static_cast<size_t>(param));
  if (!info.trainable) throw Error("gradient of " + info.name, "the parameter is frozen, and has none.");
  const at::Tensor values = whole_values(engine, param, whole);
  py::gil_scoped_release without_gil;
  for (const StateRun& run : engine.state().kept_gradients()) {
    if (run.param == param) engine.state().write_gradient(run, values.const_data_ptr<float>() + run.begin);
  }
}

// What this rank keeps or owns of trained weights, as (parameter, begin, numel).
using Parts = std::vector<std::tuple<int, int64_t, int64_t>>;

Parts trained_parts(const Engine& engine, const std::vector<StateRun>& runs) {
  Parts found;
  for (const StateRun& run : runs) {
    if (run.kind != StateKind::weight || !engine.state().params()[static_cast<size_t>(run.param)].trainable) continue;
    found.emplace_back(run.param, run.begin, run.numel);
  }
  return found;
}

at::Tensor read_weight(const Engine& engine, int param, int64_t begin, int64_t numel) {
  at::Tensor values = at::empty({numel}, at::kFloat);
  engine.state().read({param, StateKind::weight, begin, numel}, values.mutable_data_ptr<float>());
  return values;
}

at::Tensor read_gradient(const Engine& engine, int param, int64_t begin, int64_t numel) {
  at::Tensor values = at::empty({numel}, at::kFloat);
  engine.state().read_gradient({param, StateKind::weight, begin, numel}, values.mutable_data_ptr<float>());
  return values;
}

void write_weight(Engine& engine, int param, int64_t begin, const at::Tensor& values) {
  const at::Tensor contiguous = values.detach().to(at::kCPU, at::kFloat).contiguous();
  engine.state().write({param, StateKind::weight, begin, contiguous.numel()}, contiguous.const_data_ptr<float>());
}

void bind_results(py::module_& module) {
  py::class_<StepResult>(module, "StepResult")
      .def_readonly("boundary", &StepResult::boundary)
      .def_readonly("applied", &StepResult::applied)
      .def_readonly("grad_norm", &StepResult::grad_norm)
      .def_readonly("loss_scale", &StepResult::loss_scale)
      .def_readonly("lrs", &StepResult::lrs)
      .def_readonly("applied_steps", &StepResult::applied_steps)
      .def_readonly("skipped_steps", &StepResult::skipped_steps)
      .def_readonly("overflow_unit", &StepResult::overflow_unit);
  py::class_<MemoryReport>(module, "MemoryReport")
      .def_readonly("planned", &MemoryReport::planned)
      .def_readonly("held", &MemoryReport::held)
      .def_readonly("user_gathered", &MemoryReport::user_gathered);
  py::enum_<Access>(module, "Access").value("read", Access::read).value("write", Access::write);
  py::enum_<StateKind>(module, "StateKind")
      .value("weight", StateKind::weight)
      .value("first_moment", StateKind::first_moment)
      .value("second_moment", StateKind::second_moment);
  py::class_<ParamInfo>(module, "ParamInfo")
      .def_readonly("name", &ParamInfo::name)
      .def_readonly("aliases", &ParamInfo::aliases)
      .def_readonly("shape", &ParamInfo::shape)
      .def_readonly("unit", &ParamInfo::unit)
      .def_readonly("trainable", &ParamInfo::trainable)
      .def_readonly("sharded", &ParamInfo::sharded);
  py::class_<EngineProgress>(module, "EngineProgress")
      .def(py::init<>())
      .def_readwrite("applied_steps", &EngineProgress::applied_steps)
      .def_readwrite("skipped_steps", &EngineProgress::skipped_steps)
      .def_readwrite("loss_scale", &EngineProgress::loss_scale)
      .def_readwrite("loss_scale_hysteresis_left", &EngineProgress::loss_scale_hysteresis_left)
      .def_readwrite("loss_scale_step", &EngineProgress::loss_scale_step)
      .def_readwrite("loss_scale_last_overflow", &EngineProgress::loss_scale_last_overflow);
}

// A method of one of the engine's views, as one of the engine.
template <class Of, class View, class Result, class... Args>
auto through(Of view, Result (View::*method)(Args...) const) {
  return [view, method](Engine& engine, Args... args) -> Result {
    return (std::invoke(view, engine).*method)(std::forward<Args>(args)...);
  };
}
StateView state_of(Engine& engine) { return engine.state(); }

}  // namespace

void bind_engine(py::module_& module) {
  bind_results(module);
  py::class_<Engine, std::shared_ptr<Engine>>(module, "Engine")
      .def(py::init(&make_engine), py::arg("units"), py::arg("config"), py::arg("world"), py::arg("groups"),
           py::arg("seed") = 0, py::arg("broadcast_weights") = true, py::arg("device") = at::Device(at::kCPU),
           py::keep_alive<1, 4>())
      .def("enter", &enter)
      .def("leave", &leave)
      .def("abandon", through(&Engine::hooks, &HooksView::abandon), Released())
      .def("read_outside_uses", &read_outside_uses)
      .def_property_readonly("in_backward", through(&Engine::hooks, &HooksView::in_backward))
      .def("begin_backward", through(&Engine::hooks, &HooksView::begin_backward), py::arg("root"),
           py::arg("engine_divides") = false, Released())
      .def("finish_backward", through(&Engine::hooks, &HooksView::finish_backward), Released())
      .def("abandon_backward", through(&Engine::hooks, &HooksView::abandon_backward), py::arg("because"), Released())
      .def("expect_scaled_loss", through(&Engine::hooks, &HooksView::expect_scaled_loss))
      .def("check_unchanged", through(&Engine::hooks, &HooksView::check_unchanged))
      .def("leaf_seed", through(&Engine::hooks, &HooksView::leaf_seed), py::arg("forward"))
      .def("set_boundary", &Engine::set_boundary, py::arg("is_last"))
      .def_property_readonly("at_boundary", &Engine::at_boundary)
      .def("set_groups",
           [](Engine& engine, const std::vector<std::pair<double, double>>& groups) {
             std::vector<GroupValues> values;
             for (const auto& [lr, weight_decay] : groups) values.push_back({lr, weight_decay});
             engine.set_groups(values);
           })
      .def("step", &Engine::step, py::arg("update") = OutsideUpdate{}, Released())
      .def("kept_parts", [](const Engine& engine) { return trained_parts(engine, engine.state().kept()); })
      .def("owned_parts", [](const Engine& engine) { return trained_parts(engine, engine.state().owned()); })
      .def("read_weight", &read_weight)
      .def("read_gradient", &read_gradient)
      .def("write_weight", &write_weight)
      .def("write_gradient", &write_gradient)
      .def("begin_gathered", through(&Engine::hooks, &HooksView::begin_gathered), Released())
      .def("finish_gathered", through(&Engine::hooks, &HooksView::finish_gathered), py::arg("id"),
           py::arg("written_by") = py::none(), Released())
      .def("params", through(state_of, &ConstStateView::params))
      .def("owned_runs", &owned_runs)
      .def("check_readable", through(state_of, &ConstStateView::check_readable), py::arg("place"))
      .def_property_readonly("accumulated", through(state_of, &ConstStateView::accumulated))
      .def_property_readonly("has_gradients", through(state_of, &ConstStateView::has_gradients))
      .def("drop_gradients", &Engine::drop_gradients)
      .def("gradient_runs", &gradient_runs, Released())
      .def("set_betas", through(&Engine::hooks, &HooksView::set_betas))
      .def("write_param", &write_param)
      .def("edit_param", &edit_param)
      .def("finish_edits", through(state_of, &StateView::finish_edits), Released())
      .def("progress", through(state_of, &ConstStateView::progress))
      .def("finish_restore", through(state_of, &StateView::finish_restore), Released())
      .def_property_readonly("loss_scale", through(state_of, &ConstStateView::loss_scale))
      .def("memory", through(&Engine::meters, &MetersView::memory))
      .def("explain_out_of_memory",
           [](const Engine& engine, const std::string& phase, const std::string& said) {
             return std::string(engine.meters().explain_out_of_memory(phase, said).what());
           })
      .def("log_collectives", through(&Engine::meters, &MetersView::log_collectives), py::arg("on"))
      .def("take_collectives",
           [](Engine& engine) {
             std::vector<std::tuple<std::string, std::string, uint64_t, double>> records;
             for (CollectiveRecord& each : engine.meters().take_collectives()) {
               records.emplace_back(std::move(each.kind), std::move(each.subject), each.nbytes, each.seconds);
             }
             return records;
           })
      .def_property_readonly("waited_seconds", through(&Engine::meters, &MetersView::waited_seconds));

  module.def(
      "make_whole",
      [](const std::vector<UnitTuple>& units, Group& world) {
        const std::vector<Unit> made = to_units(units);
        py::gil_scoped_release without_gil;
        make_whole(made, world);
      },
      "Turns parameters that an engine left released into ordinary tensors. Every rank calls it.");
}

}  // namespace shoal::python
