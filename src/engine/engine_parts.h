// What an engine is made of, in the order in which it comes to be. Composed here; nothing is decided.
#pragma once

#include <ATen/core/Generator.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/blueprint.h"
#include "engine/channel.h"
#include "engine/host_inputs.h"
#include "engine/module_calls.h"
#include "engine/passes.h"
#include "engine/soundness.h"
#include "engine/state_access.h"
#include "optim/stepper.h"
#include "optim/updater.h"
#include "shoal/engine.h"

namespace shoal {

// What is decided before anything is built.
struct EngineBasis {
  Config config;
  Blueprint blueprint;
  ModelLayout layout;
};

struct EngineParts : EngineBasis {
  // Collective: ranks compare models and configs, and the parameters' values are taken over.
  EngineParts(const std::vector<Unit>& units, const Config& config, Group& world, const EngineOptions& options);
  ~EngineParts();
  EngineParts(const EngineParts&) = delete;
  EngineParts& operator=(const EngineParts&) = delete;

  // Throws unless the engine may go on. No backward is to be under way but one that runs: one of autograd's own that
  // ended with an exception told nobody.
  void check_sound(const std::string& place);
  // Carries out the updates that the last step has left to do, before the engine goes.
  void settle() noexcept;

  int rank() const { return weights_channel->notes().rank(); }
  int ranks() const { return weights_channel->notes().size(); }
  bool on_gpu() const { return device.is_cuda(); }

  at::Device device;
  Soundness soundness;
  std::unique_ptr<Queue> queue;    // on which the rank computes
  std::shared_ptr<Ledger> ledger;  // shared with slabs that outlive the engine
  // Before ranks talk: one that has no room for its states ends alone, and the others say who is missing.
  KeptStates states;
  Updater updater;
  std::unique_ptr<ScratchFile> shard_file;   // until the weights have it
  std::optional<Channel> weights_channel;    // gathers and publishes
  std::optional<Channel> gradients_channel;  // reductions and the norm
  Weights weights;
  Gradients gradients;
  StateAccess state_access;
  Passes passes;
  ModuleCalls calls{passes};
  std::unique_ptr<HostInputs> host_inputs;  // nothing: inputs of recomputed regions stay where they are
  Stepper stepper;
  at::Generator generator;
  int ranks_on_gpu = 1;

 private:
  void hook_gradients();
  void name_holds();
  void say_what_was_found() const;
};

}  // namespace shoal
