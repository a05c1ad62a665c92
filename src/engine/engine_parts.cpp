// See engine_parts.h.
#include "engine/engine_parts.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/text.h"
#include "comm/gpu/gpus_of_ranks.h"
#include "comm/group/full_group.h"
#include "engine/generator.h"
#include "engine/initial_values.h"
#include "engine/options.h"
#include "plan/from_config.h"
#include "shard/compute_queue.h"
#include "shoal/device.h"

namespace shoal {

namespace {

// Checked as it comes to be, before anything is allocated.
EngineBasis decide(const std::vector<Unit>& units, const Config& config, int world, const EngineOptions& options) {
  check_batch(config, mesh_of(config, world));
  EngineBasis basis{config, make_blueprint(units, config, options.groups.size()), {}};
  basis.layout = lay_out(basis.blueprint.specs, layout_options(config, world));
  check_gradients(basis.layout, config, options.device);
  check_speculation(basis.layout, config, options.device);
  return basis;
}

// The second channel, once ranks have agreed on the first.
std::optional<Channel> open_gradients_channel(const EngineBasis& basis, const EngineOptions& options,
                                              const Channel& first, Group& world, Queue& queue) {
  check_agreement(basis.blueprint, basis.config, options.groups, first.notes());
  return Channel(world, "gradients", queue, basis.config.shoal.reduce);
}

}  // namespace

EngineParts::EngineParts(const std::vector<Unit>& units, const Config& given, Group& world,
                         const EngineOptions& options)
    : EngineBasis(decide(units, with_hosts(given, full(world).hosts()), world.size(), options)),
      device(options.device),
      queue(make_compute_queue(device)),
      ledger(std::make_shared<Ledger>()),
      states(layout, config, world.rank(), *queue, ledger),
      updater(layout, blueprint.specs, config, states, *queue, ledger),
      shard_file(make_shard_file(layout, config, ledger)),
      weights_channel(std::in_place, world, "weights", *queue),
      gradients_channel(open_gradients_channel(*this, options, *weights_channel, world, *queue)),
      weights(layout, shard_options(config), std::move(shard_file), weights_channel->bytes(), *queue,
              weights_channel->queue(), ledger),
      gradients(layout, gradient_options(config), reduce_options(config), gradients_channel->bytes(), *queue,
                gradients_channel->queue(), ledger, device.is_cuda() ? gradients_of_host(layout, config) : HostFlats{}),
      state_access(blueprint, layout, states, weights),
      passes(layout, pass_options(config, layout), weights, gradients, weights_channel->notes(),
             gradients_channel->notes()),
      stepper({layout, config, weights, gradients, updater, gradients_channel->bytes(), *queue, ledger},
              group_lrs(options, config), group_weight_decays(options, config)),
      generator(make_generator(device, hash_text(fmt::format("seed {} rank {}", options.seed, world.rank())))) {
  prepare_products(device, dtype_of(config.precision));
  take_over({blueprint, layout, weights, states, *weights_channel, *queue, device}, options.broadcast_weights);
  hook_gradients();
  if (on_gpu()) {
    ranks_on_gpu = ranks_that_share(gpus_of_ranks(weights_channel->notes(), device.index()), world.rank());
    if (config.inputs_on_host) host_inputs = std::make_unique<HostInputs>(*queue, device, ledger);
  }
  passes.when_weights_are_needed([this](int unit) { stepper.settle(unit); });
  passes.when_work_goes_on([this] { updater.pace(); });
  passes.when_lost([this](const std::string& because) { soundness.pass_failed(because); });
  stepper.when_torn([this] { soundness.step_failed(); });
  name_holds();
  say_what_was_found();
}

void EngineParts::check_sound(const std::string& place) {
  if (passes.in_backward() && RunningGraph::id_of_now() < 0) soundness.backward_failed("it never came to its end.");
  soundness.check(place);
}

void EngineParts::settle() noexcept {
  // An update of weights on disk waits for gathers that read from its buffer, and peers may never come to them. (One
  // rank has no peers, and its updates still go through the channel.)
  if (weights.file() != nullptr && layout.mesh.world() > 1) {
    weights.close_groups();
    weights_channel.reset();
  }
  try {
    stepper.settle_all();  // whoever deferred updates communicates nothing in them
  } catch (const std::exception& error) {
    fmt::print(stderr, "shoal: the last step of an engine that goes is lost: {}\n", error.what());
  }
}

EngineParts::~EngineParts() {
  settle();
  try {
    passes.unhook_gradients();
    weights.leave();
  } catch (const std::exception& error) {
    fmt::print(stderr, "shoal: an engine could not give its parameters back as it ended: {}\n", error.what());
  }
  // After an error collectives may be under way: their workers stop before the memory that they write is given back.
  gradients.close_groups();
  weights.close_groups();
  gradients_channel.reset();
  weights_channel.reset();
}

void EngineParts::hook_gradients() {
  for (size_t unit = 0; unit < blueprint.specs.size(); ++unit) {
    const std::vector<ParamSpec>& params = blueprint.specs[unit].params;
    for (size_t param = 0; param < params.size(); ++param) {
      if (!params[param].trainable) continue;
      passes.hook_gradient(static_cast<int>(unit), static_cast<int>(param), blueprint.tensors[unit][param]);
    }
  }
}

// For the log of waits, and as Meters counts them.
void EngineParts::name_holds() {
  if (weights.is_off_device()) {
    full(weights_channel->bytes()).log_stalls_as("host: weights");
  } else if (layout.mesh.world() > 1) {
    full(weights_channel->bytes()).log_stalls_as("ranks: weights");
  }
  if (layout.mesh.world() > 1) full(gradients_channel->bytes()).log_stalls_as("ranks: gradients");
}

void EngineParts::say_what_was_found() const {
  if (rank() == 0) {
    for (const std::string& notice : config.notices) fmt::print(stderr, "shoal: {}\n", notice);
    const std::string notice = notice_of_unused_offload(layout, shard_options(config));
    if (!notice.empty()) fmt::print(stderr, "shoal: {}\n", notice);
  }
  const auto say_of_disk = [&](const char* what, const ScratchFile* file) {
    if (file == nullptr) return;
    for (const std::string& note : file->notes()) fmt::print(stderr, "shoal: {}\n", note);
    if (rank() == 0) fmt::print(stderr, "shoal: {} on disk: {}\n", what, file->description());
  };
  say_of_disk("optimizer states", states.memory().file());
  say_of_disk("weights", weights.file());
}

}  // namespace shoal
