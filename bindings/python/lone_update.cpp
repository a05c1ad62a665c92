// The update of tensors that no engine holds, for optimizers in Python that step on their own.
#include "optim/lone_update.h"

#include <torch/csrc/utils/pybind.h>

#include <cctype>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "base/thread_pool.h"
#include "bindings.h"

namespace shoal::python {

namespace {

constexpr int64_t kLoneGrain = 32 * 1024;  // elements; below this one thread does it all

DType element_type(const at::Tensor& tensor, const char* what) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return DType::f32;
    case at::kBFloat16: return DType::bf16;
    case at::kHalf: return DType::f16;
    default: throw py::type_error(std::string("[update] ") + what + " is neither fp32 nor bf16 nor fp16.");
  }
}

void* memory_of(const at::Tensor& tensor, int64_t numel, const char* what) {
  if (!tensor.device().is_cpu() || !tensor.is_contiguous() || tensor.numel() != numel)
    throw py::type_error(std::string("[update] ") + what +
                         " is not a contiguous tensor in host memory of the weight's numel.");
  return tensor.data_ptr();
}

std::string in_small_letters(std::string_view name) {
  std::string text(name);
  for (char& letter : text) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

// By its name in small letters. Those whose states hang on momentum are torch's to step alone; those that need norms of
// whole parameters need an engine.
OptimizerKind kind_of(const std::string& name) {
  std::vector<std::string> known;
  for (const OptimizerRow& row : kOptimizers) {
    if (row.states_need_momentum || row.by_parameter) continue;
    known.push_back(in_small_letters(row.name));
    if (known.back() == name) return row.kind;
  }
  const std::string last = known.back();
  known.pop_back();
  throw py::value_error("[update] " + name + " is not " + join(known, ", ") + " or " + last + ".");
}

// Threads of its own; one update at a time has them all.
class LoneUpdates {
 public:
  explicit LoneUpdates(int threads) : pool_(threads) {}

  void update(const std::string& kind, const at::Tensor& weight, const at::Tensor& grad, const at::Tensor& first,
              const std::optional<at::Tensor>& second, int64_t step, double lr, double weight_decay, double beta1,
              double beta2, double eps, bool bias_correction) {
    OptimizerConfig config;
    config.kind = kind_of(kind);
    config.eps = eps;
    config.bias_correction = bias_correction;
    StepNumbers numbers;
    numbers.step = step;
    numbers.lrs = {lr};
    numbers.weight_decays = {weight_decay};
    numbers.beta1 = beta1;
    numbers.beta2 = beta2;
    LoneTensor tensor;
    tensor.numel = weight.numel();
    tensor.weight = memory_of(weight, tensor.numel, "the weight");
    tensor.weight_dtype = element_type(weight, "the weight");
    tensor.grad = memory_of(grad, tensor.numel, "the gradient");
    tensor.grad_dtype = element_type(grad, "the gradient");
    tensor.first = memory_of(first, tensor.numel, "a state");
    tensor.state_dtype = element_type(first, "a state");
    if (second) {
      tensor.second = memory_of(*second, tensor.numel, "a state");
      if (second->scalar_type() != first.scalar_type()) throw py::type_error("[update] the states differ in dtype.");
    }
    const int states = optimizer_row(config.kind).states();
    if (states != (second ? 2 : 1))
      throw py::type_error("[update] " + kind + " has " + std::to_string(states) +
                           (states == 1 ? " state" : " states") + " an element.");
    const py::gil_scoped_release without_gil;
    update_alone(tensor, group_steps(config, numbers),
                 [this](int64_t numel, const std::function<void(int64_t, int64_t)>& work) {
                   pool_.run(numel, kLoneGrain, work);
                 });
  }

 private:
  ThreadPool pool_;
};

}  // namespace

void bind_lone_update(py::module_& module) {
  py::class_<LoneUpdates>(module, "LoneUpdates")
      .def(py::init<int>(), py::arg("threads"))
      .def("update", &LoneUpdates::update, py::arg("kind"), py::arg("weight"), py::arg("grad"), py::arg("first"),
           py::arg("second"), py::kw_only(), py::arg("step"), py::arg("lr"), py::arg("weight_decay"),
           py::arg("beta1") = 0.9, py::arg("beta2") = 0.999, py::arg("eps") = 1e-8, py::arg("bias_correction") = true,
           "One step of one tensor, in place.");
}

}  // namespace shoal::python
