// What Engine's methods were called in 0.1, where they are now methods of its views. They forward, with a warning of
// the compiler that says the new name, and go with 0.3.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "shoal/engine_state.h"
#include "shoal/error.h"
#include "shoal/group.h"
#include "shoal/meters_view.h"

namespace shoal {

// A base of Engine, which is `E`.
template <class E>
class EngineNames01 {
  using Tensors = std::vector<at::Tensor>;

 public:
  [[deprecated("use engine.state().params()")]] const std::vector<ParamInfo>& params() const {
    return of().state().params();
  }
  [[deprecated("use engine.state().owned()")]] std::vector<StateRun> owned_state() const {
    return of().state().owned();
  }
  [[deprecated("use engine.state().kept()")]] std::vector<StateRun> kept_state() const { return of().state().kept(); }
  [[deprecated("use engine.state().read()")]] void read_state(const StateRun& part, float* values) const {
    of().state().read(part, values);
  }
  [[deprecated("use engine.state().write()")]] void write_state(const StateRun& part, const float* values) {
    of().state().write(part, values);
  }
  [[deprecated("use engine.state().owned_gradients()")]] std::vector<StateRun> owned_gradients() {
    return of().state().owned_gradients();
  }
  [[deprecated("use engine.state().read_gradient()")]] void read_gradient(const StateRun& part, float* values) const {
    of().state().read_gradient(part, values);
  }
  [[deprecated("use engine.state().kept_gradients()")]] std::vector<StateRun> kept_gradients() {
    return of().state().kept_gradients();
  }
  [[deprecated("use engine.state().write_gradient()")]] void write_gradient(const StateRun& part, const float* values) {
    of().state().write_gradient(part, values);
  }
  [[deprecated("use engine.state().progress()")]] EngineProgress progress() const { return of().state().progress(); }
  [[deprecated("use engine.state().finish_restore()")]] void finish_restore(const EngineProgress& progress) {
    of().state().finish_restore(progress);
  }
  [[deprecated("use engine.state().loss_scale()")]] double loss_scale() const { return of().state().loss_scale(); }

  [[deprecated("use engine.meters().memory()")]] MemoryReport memory() const { return of().meters().memory(); }
  [[deprecated("use engine.meters().traffic()")]] Traffic traffic() const { return of().meters().traffic(); }
  [[deprecated("use engine.meters().waited_seconds()")]] double waited_seconds() const {
    return of().meters().waited_seconds();
  }
  [[deprecated("use engine.meters().disk()")]] DiskTraffic disk() const { return of().meters().disk(); }
  [[deprecated("use engine.meters().host()")]] HostTraffic host() const { return of().meters().host(); }

  [[deprecated("use engine.hooks().enter()")]] void enter(int unit, const Tensors& inputs) {
    of().hooks().enter(unit, inputs);
  }
  [[deprecated("use engine.hooks().exit()")]] void exit(int unit, const Tensors& outputs) {
    of().hooks().exit(unit, outputs);
  }
  [[deprecated("use engine.hooks().abandon()")]] void abandon(int unit) { of().hooks().abandon(unit); }
  [[deprecated("use engine.hooks().begin_backward()")]] void begin_backward() { of().hooks().begin_backward(); }
  [[deprecated("use engine.hooks().finish_backward()")]] void finish_backward() { of().hooks().finish_backward(); }
  [[deprecated("use engine.hooks().begin_gathered()")]] int begin_gathered(const std::vector<std::string>& names) {
    return of().hooks().begin_gathered(names);
  }
  [[deprecated("use engine.hooks().finish_gathered()")]] void finish_gathered(int id,
                                                                              std::optional<int> written_by = {}) {
    of().hooks().finish_gathered(id, written_by);
  }
  [[deprecated("use engine.hooks().set_betas()")]] void set_betas(double beta1, double beta2) {
    of().hooks().set_betas(beta1, beta2);
  }
  [[deprecated("use engine.meters().explain_out_of_memory()")]] Error explain_out_of_memory(
      const std::string& phase, const std::string& said) const {
    return of().meters().explain_out_of_memory(phase, said);
  }

 protected:
  EngineNames01() = default;
  ~EngineNames01() = default;

 private:
  E& of() { return static_cast<E&>(*this); }
  const E& of() const { return static_cast<const E&>(*this); }
};

}  // namespace shoal
