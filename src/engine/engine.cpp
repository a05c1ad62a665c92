// Wires the parts together; see include/shoal/engine.h. What happens in a pass is in passes.h, at a boundary in
// optim/stepper.h; everything that computes lives in the folders before this one.
#include "shoal/engine.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "comm/gpu/gpus_of_ranks.h"
#include "comm/group/full_group.h"
#include "device/cuda.h"
#include "engine/auto_placement.h"
#include "engine/blueprint.h"
#include "engine/channel.h"
#include "engine/gathered.h"
#include "engine/generator.h"
#include "engine/graph_hooks.h"
#include "engine/host_inputs.h"
#include "engine/initial_values.h"
#include "engine/module_calls.h"
#include "engine/options.h"
#include "engine/out_of_memory.h"
#include "engine/own_thread_backward.h"
#include "engine/passes.h"
#include "engine/pending_steps.h"
#include "engine/recompute.h"
#include "engine/state_access.h"
#include "engine/step_line.h"
#include "engine/stopwatch.h"
#include "optim/stepper.h"
#include "optim/updater.h"
#include "plan/from_config.h"
#include "plan/memory.h"
#include "plan/ring_layout.h"
#include "shard/compute_queue.h"
#include "shoal/device.h"
#include "shoal/error.h"

namespace shoal {

namespace {

constexpr int64_t kStepsBeforeGrowth = 2;

Config placed(const std::vector<Unit>& units, const Config& config, Group& world, const EngineOptions& options) {
  PlacedConfig found = carry_out_placement(config, units, options.groups.size(), world, options.device);
  if (!found.words.empty() && world.rank() == 0) fmt::print(stderr, "shoal: {}\n", found.words);
  return std::move(found.config);
}

}  // namespace

class Engine::Impl {
 public:
  Impl(const std::vector<Unit>& units, const Config& config, Group& world, const EngineOptions& options)
      : config_((check_world(config, world.size()), config)),
        blueprint_(make_blueprint(units, config, options.groups.size())),
        layout_(lay_out(blueprint_.specs, layout_options(config, world.size()))),
        device_((check_gradients(layout_, config, options.device), check_speculation(layout_, config, options.device),
                 options.device)),
        queue_(make_compute_queue(device_)),
        ledger_(std::make_shared<Ledger>()),
        // Before ranks talk: one that has no room for its states ends alone, and the others say who is missing.
        states_(layout_, config, world.rank(), *queue_, ledger_),
        updater_(layout_, blueprint_.specs, config, states_, *queue_, ledger_),
        shard_file_(make_shard_file(layout_, config, ledger_)),
        weights_channel_(std::in_place, world, "weights", *queue_),
        gradients_channel_(
            (check_agreement(blueprint_, config, options.groups, weights_channel_->notes()), std::in_place), world,
            "gradients", *queue_),
        weights_(layout_, shard_options(config), std::move(shard_file_), weights_channel_->bytes(), *queue_, ledger_),
        gradients_(layout_, gradient_options(config), reduce_options(config, world.size()), gradients_channel_->bytes(),
                   *queue_, gradients_channel_->queue(), ledger_,
                   device_.is_cuda() ? gradients_of_host(layout_, config) : HostFlats{}),
        state_access_(blueprint_, layout_, world.rank(), states_, weights_),
        passes_(layout_, pass_options(config, layout_), weights_, gradients_, weights_channel_->notes(),
                gradients_channel_->notes()),
        stepper_({layout_, config_, weights_, gradients_, updater_, gradients_channel_->bytes(), *queue_, ledger_},
                 group_lrs(options, config), group_weight_decays(options, config)),
        generator_(make_generator(device_, hash_text(fmt::format("seed {} rank {}", options.seed, world.rank())))) {
    prepare_products(device_, dtype_of(config.precision));
    take_over({blueprint_, layout_, weights_, states_, *weights_channel_, *queue_, device_}, options.broadcast_weights);
    for (int unit = 0; unit < static_cast<int>(blueprint_.specs.size()); ++unit) hook_gradients(unit);
    if (device_.is_cuda()) {
      ranks_on_gpu_ = ranks_that_share(gpus_of_ranks(weights_channel_->notes(), device_.index()), world.rank());
    }
    passes_.when_weights_are_needed([this](int unit) { stepper_.settle(unit); });
    if (device_.is_cuda() && config_.inputs_on_host) {
      host_inputs_ = std::make_unique<HostInputs>(*queue_, device_, ledger_);
    }
    passes_.when_work_goes_on([this] { updater_.pace(); });
    passes_.when_reduced([this](int unit) {
      if (is_last() && !updates_outside_ && !accumulates_more_) stepper_.begin_ahead(unit);
    });
    hooked_ = options.backward_from_outside;
    if (hooked_) passes_.when_backward_begins_outside([this] { begin_outside_backward(); });
    if (world.rank() == 0) {
      for (const std::string& notice : config.notices) fmt::print(stderr, "shoal: {}\n", notice);
      const std::string notice = notice_of_unused_offload(layout_, shard_options(config));
      if (!notice.empty()) fmt::print(stderr, "shoal: {}\n", notice);
    }
    say_of_disk("optimizer states", states_.memory().file());
    say_of_disk("weights", weights_.file());
    name_holds();
    if (!config_.batch.managed_gradient_accumulation) boundary_ = true;  // each step() ends one
  }

  // For the log of waits, and as waited_seconds() and host_seconds() count them.
  void name_holds() {
    if (weights_.is_off_device()) {
      full(weights_channel_->bytes()).log_holds_as("host: weights");
    } else if (layout_.world > 1) {
      full(weights_channel_->bytes()).log_holds_as("ranks: weights");
    }
    if (layout_.world > 1) full(gradients_channel_->bytes()).log_holds_as("ranks: gradients");
  }

  void say_of_disk(const char* what, const ScratchFile* file) const {
    if (file == nullptr) return;
    for (const std::string& note : file->notes()) fmt::print(stderr, "shoal: {}\n", note);
    if (weights_channel_->notes().rank() != 0) return;
    fmt::print(stderr, "shoal: {} on disk: {}\n", what, file->description());
  }

  ~Impl() {
    // An update of weights on disk waits for gathers that read from its buffer, and peers may never come to them. (One
    // rank has no peers, and its updates still go through the channel.)
    if (weights_.file() != nullptr && layout_.world > 1) weights_channel_.reset();
    try {
      stepper_.settle_all();  // whoever deferred updates communicates nothing in them
    } catch (const std::exception& error) {
      fmt::print(stderr, "shoal: the last step of an engine that goes is lost: {}\n", error.what());
    }
    passes_.unhook_gradients();
    gathered_.clear();
    weights_.leave();
    // After an error collectives may be under way: their workers stop before the memory that they write is given back.
    gradients_channel_.reset();
    weights_channel_.reset();
  }

  void hook_gradients(int unit) {
    const UnitSpec& spec = blueprint_.specs[static_cast<size_t>(unit)];
    for (int param = 0; param < static_cast<int>(spec.params.size()); ++param) {
      if (!spec.params[static_cast<size_t>(param)].trainable) continue;
      const at::Tensor& tensor = blueprint_.tensors[static_cast<size_t>(unit)][static_cast<size_t>(param)];
      passes_.hook_gradient(unit, param, tensor);
    }
  }

  Tensors run(int unit, const Tensors& inputs, const Forward& forward) {
    check_use(unit);
    Stopwatch watch(times_.forward, timing_);
    passes_.enter(unit, inputs);
    Tensors outputs;
    try {
      outputs = forward(inputs);
    } catch (const c10::OutOfMemoryError& error) {
      passes_.abandon(unit);
      throw explain(out_of_memory("forward", error.what_without_backtrace()));
    } catch (...) {
      passes_.abandon(unit);
      throw;
    }
    passes_.exit(unit, outputs);
    return outputs;
  }

  OutOfMemory out_of_memory(const std::string& phase, const std::string& said) const {
    OutOfMemory event;
    event.unit = layout_.units[static_cast<size_t>(passes_.unit_at_work())].name;
    event.phase = phase;
    event.said = said;
    event.memory = memory();
    event.stage = config_.zero.stage;
    event.world = layout_.world;
    event.micro_batch = config_.batch.micro_batch_size;
    if (device_.is_cuda()) event.device_nbytes = cuda::facts_of(device_.index()).total_nbytes;
    return event;
  }

  // Whether a step ends with this micro-step of it.
  bool ends_step(int64_t micro_step) const {
    return boundary_.value_or(micro_step + 1 >= config_.batch.accumulation_steps);
  }
  bool is_last() const { return ends_step(micro_step_); }

  // A step that threw half-way has updated some units and not others; a pass that could not gather its weights has some
  // units gathered and not others.
  void check_whole(const char* place) const {
    if (stepper_.torn()) {
      throw Error(place,
                  "an earlier step failed half-way, and its weights are of two steps. Resume from a checkpoint.");
    }
    if (!passes_.lost_because().empty()) {
      throw Error(place, fmt::format("{} Destroy the engine and resume from a checkpoint.", passes_.lost_because()));
    }
  }

  // The same where no backward is to be under way but one that runs: one of autograd's own that ended with an exception
  // told nobody.
  void check_sound(const char* place) {
    if (passes_.in_backward() && RunningGraph::id_of_now() < 0) abandon_backward("it never came to its end.");
    check_whole(place);
  }

  // Before a use of a unit, at every door.
  void check_use(int unit) {
    check_unit(unit);
    if (inside_gathered_) throw Error("run", "a unit is used inside with_gathered. Leave it first.");
    check_sound("run");
    check_usable(unit);
    check_stream(unit);
  }

  void begin_backward(const at::Tensor& root) {
    loss_is_scaled_ = false;
    prepare_backward();
    passes_.begin_backward(root);
    tell_gradients();
  }

  void prepare_backward() {
    check_sound("backward");
    if (passes_.in_backward()) throw Error("backward", "is called inside a backward of the same engine.");
    if (passes_.evaluating()) {
      throw Error("backward", "a forward without gradients was interrupted. Run a forward of the model first.");
    }
    if (hooked_ && passes_.between_passes()) {
      throw Error("backward",
                  "no forward of the model has run since the last backward. Pass the loss of a new forward, once.");
    }
    stepper_.settle_all();  // gradients will be overwritten
    const bool has_mean = micro_step_ > 0 && reduced_;
    if (has_mean || (!is_last() && config_.batch.accumulation_steps == 1)) accumulate_more();
  }

  // More backwards come before a step than the config says: what is reduced already stays, and memory for the sum is
  // taken when it is first needed.
  void accumulate_more() {
    if (accumulates_more_) return;
    const bool moves_states = device_.is_cuda() && config_.zero.offload_optimizer.tier_in_use() != Tier::device;
    if (moves_states || config_.shoal.speculative_update) {
      throw Error("backward",
                  fmt::format("more backwards come before a step than gradient_accumulation_steps, {}, and with "
                              "optimizer states off the GPU, or updated ahead, the memory to add them up in is planned "
                              "before the run. Set gradient_accumulation_steps to the number of backwards in a step.",
                              config_.batch.accumulation_steps));
    }
    gradients_.wait();
    const auto held = [&] {
      return ledger_->line(MemoryKind::gradients).nbytes + ledger_->line(MemoryKind::reduce_slots).nbytes;
    };
    const size_t before = held();
    try {
      gradients_.accumulate_more();
    } catch (const std::exception& error) {
      abandon_backward(first_line(error.what()));
      throw;
    }
    updater_.find_gradients_again();
    accumulates_more_ = true;
    if (weights_channel_->notes().rank() != 0 || held() <= before) return;
    fmt::print(stderr,
               "shoal: more backwards come before a step than gradient_accumulation_steps, {}: gradients are added up, "
               "in {} more than planned on each rank\n",
               config_.batch.accumulation_steps, format_nbytes(held() - before));
  }

  void tell_gradients() {
    gradients_.set_last(is_last());
    if (is_last() && !updates_outside_) updater_.read_ahead();
  }

  void abandon_backward(const std::string& because) {
    passes_.lose(fmt::format("an earlier backward failed half-way, and its gradients are incomplete: {}", because));
  }

  void finish_backward() {
    check_whole("backward");
    reduced_ = is_last();
    passes_.finish_backward();
    ++micro_step_;
    passes_.set_micro_step(micro_step_);
  }

  // A gradient came and Engine::backward was not called: autograd itself says when it is through.
  void begin_outside_backward() {
    if (!std::exchange(loss_is_scaled_, false) && loss_scale() != 1) {
      throw Error("backward", fmt::format("loss.backward() does not know the loss scale, {}. Call "
                                          "engine.backward(loss), or engine.scale(loss).backward().",
                                          loss_scale()));
    }
    prepare_backward();
    passes_.begin_running_backward(1.0 / static_cast<double>(config_.batch.accumulation_steps));
    tell_gradients();
    torch::autograd::Engine::get_default_engine().queue_callback([this, alive = passes_.alive()] {
      if (!alive.expired()) finish_backward();
    });
  }

  void backward(const at::Tensor& loss) {
    if (loss.numel() != 1 || !loss.requires_grad()) {
      throw Error("backward",
                  fmt::format("the loss has {} elements and {} a graph. Pass a scalar that the model computed.",
                              loss.numel(), loss.requires_grad() ? "has" : "has not"));
    }
    Stopwatch watch(times_.backward, timing_);
    // In fp32: a 16-bit loss could not hold the scale.
    const at::Tensor root = loss.scalar_type() == at::kFloat ? loss : loss.to(at::kFloat);
    begin_backward(root);
    // Torch has one thread for all backward passes of a GPU. Ranks that are threads of one process would wait for each
    // other in it, so each goes through its backward in its own thread.
    const OwnThreadBackward own_thread;
    try {
      torch::autograd::backward({root}, {backward_scale(root)});
    } catch (const c10::OutOfMemoryError& error) {
      abandon_backward("the GPU's memory was full.");
      throw explain(out_of_memory("backward", error.what_without_backtrace()));
    } catch (const std::exception& error) {
      abandon_backward(first_line(error.what()));
      throw;
    }
    finish_backward();
  }

  // What the loss is multiplied by. A scale that moves is where the steps that are not read yet will have left it.
  at::Tensor backward_scale(const at::Tensor& root) {
    const at::TensorOptions options = root.options().requires_grad(false);
    if (float* moving = stepper_.moving_backward_scale()) {
      return at::from_blob(moving, {1}, options).reshape(root.sizes()).clone();
    }
    return at::full(root.sizes(), stepper_.loss_scale() / static_cast<double>(config_.batch.accumulation_steps),
                    options);
  }

  // Waits for steps that may move it.
  double loss_scale() {
    if (stepper_.moving_backward_scale() != nullptr) pending_.read_all();
    return stepper_.loss_scale();
  }

  PendingStep step_later(const OutsideUpdate& update) {
    check_sound("step");
    if (micro_step_ == 0) throw Error("step", "no gradient has come since the last step. Call backward(loss) first.");
    loss_is_scaled_ = false;
    if (!ends_step(micro_step_ - 1)) return PendingStep(pending_.add_inside());
    if (!reduced_) {
      throw Error("step",
                  "the last backward did not end a step: the boundary was false when it ran. Set the boundary before "
                  "the backward.");
    }
    pending_.make_room();
    std::shared_ptr<PendingStep::State> step;
    {
      Stopwatch watch(times_.step, timing_);
      micro_step_ = 0;
      passes_.set_micro_step(0);
      stepper_.take(update);
      step = pending_.add();  // before anything else can throw: it is taken
      count_waits();
      if (!gathered_.empty()) stepper_.settle_all();  // what the user writes there comes after it
    }
    updater_.end_step();
    updates_outside_ = update != nullptr;
    if (!updates_outside_ && ++own_steps_ == kStepsBeforeGrowth) fit_offload();
    if (!updates_outside_) updater_.read_ahead();
    if (own_steps_ == 1) say_if_unpinned();
    step->times = std::exchange(times_, {});
    return PendingStep(step);
  }

  // Since the last step, which is where deferred updates wait.
  void count_waits() {
    const double disk = disk_counters().waited_seconds;
    const double host = host_seconds();
    times_.disk = disk - waited_.disk;
    times_.host = host - waited_.host;
    waited_.disk = disk;
    waited_.host = host;
  }

  // How long other ranks were waited for: by this rank's threads, and by its GPU.
  double waited_seconds() const {
    const double threads = weights_channel_->waited_seconds() + gradients_channel_->waited_seconds();
    if (layout_.world == 1) return threads;
    return threads + gradients_channel_->held_seconds() +
           (weights_.is_off_device() ? 0 : weights_channel_->held_seconds());
  }

  // How long the GPU waited for host memory: for states, gradients, and weights that live there or come through it from
  // disk. A gather of those brings them over the bus first; it counts here, the ranks' part with it.
  double host_seconds() {
    return updater_.held_seconds() + gradients_.held_seconds() +
           (weights_.is_off_device() ? weights_channel_->held_seconds() : 0);
  }

  // Of states and weights.
  DiskTraffic disk_counters() const {
    DiskTraffic sum;
    for (const ScratchFile* file : {states_.memory().file(), weights_.file()}) {
      if (file == nullptr) continue;
      const DiskFile::Counters counters = file->counters();
      sum.read_nbytes += counters.read_nbytes;
      sum.written_nbytes += counters.written_nbytes;
      sum.waited_seconds += counters.waited_seconds;
    }
    return sum;
  }

  // The steps so far have shown what the model needs: the ring of states takes a part of the rest, and the host updates
  // what the ring cannot bring in time.
  void fit_offload() {
    const size_t ring = states_.memory().ring_nbytes();
    if (!device_.is_cuda() || ring == 0) return;
    stepper_.settle_all();
    if (config_.shoal.offload_ring_size == 0) {
      const cuda::DeviceFacts gpu = cuda::facts_of(device_.index());
      updater_.grow_ring(grown_ring_nbytes(ring, gpu.free_nbytes, gpu.total_nbytes, ranks_on_gpu_,
                                           static_cast<size_t>(config_.shoal.device_budget)));
    }
    if (config_.shoal.offload_update == OffloadUpdate::automatic && updater_.can_share()) share_update();
  }

  // A wish: training goes on as it did where there is no memory to try it.
  void share_update() {
    UpdateRates rates;
    int64_t shared = 0;
    try {
      rates = updater_.measure_rates();
      shared = updater_.share_with_host(rates);
    } catch (const Error& error) {
      fmt::print(stderr, "shoal: the host updates no states beside the GPU: {}\n", error.what());
    }
    if (shared == 0 || weights_channel_->notes().rank() != 0) return;
    fmt::print(
        stderr,
        "shoal: the host updates {:.3g} billion parameters beside the GPU (states come with {:.3g} GB/s, and the "
        "host updates {:.3g} billion parameters a second)\n",
        static_cast<double>(shared) * 1e-9, rates.bus_nbytes * 1e-9, rates.host_numel * 1e-9);
  }

  void say_if_unpinned() const {
    const auto say = [](const char* what, const std::string& why) {
      if (!why.empty()) fmt::print(stderr, "shoal: copies of {} are slow: host memory is not pinned: {}\n", what, why);
    };
    say("states", states_.memory().unpinned_because());
    say("gradients", gradients_.unpinned_because());
  }

  void print(const StepResult& result, const StepTimes& times) const {
    const int64_t number = result.applied_steps + result.skipped_steps;
    if (weights_channel_->notes().rank() != 0) return;
    if (!result.applied || (config_.steps_per_print > 0 && number % config_.steps_per_print == 0)) {
      fmt::print(stderr, "shoal: {}\n", step_line(result));
    }
    if (config_.wall_clock_breakdown) fmt::print(stderr, "shoal: {}\n", time_line(result, times));
  }

  std::vector<ParamAddress> addresses_of(const std::vector<std::string>& names) const {
    std::vector<ParamAddress> addresses;
    for (const std::string& name : names) {
      const auto found = blueprint_.by_name.find(name);
      if (found == blueprint_.by_name.end()) {
        std::vector<std::string> known;
        for (const auto& [known_name, address] : blueprint_.by_name) known.push_back(known_name);
        const std::string near = nearest_word(name, known);
        throw Error("with_gathered", fmt::format("there is no parameter {}.{}", name,
                                                 near.empty() ? " Use the names that the units were declared with."
                                                              : fmt::format(" Did you mean {}?", near)));
      }
      addresses.push_back(found->second);
    }
    return addresses;
  }

  GatherParts gather_parts() { return {layout_, weights_, states_, weights_channel_->bytes(), *queue_, ledger_}; }

  void with_gathered(const std::vector<std::string>& names, Access access, const std::function<void()>& use) {
    check_sound("with_gathered");
    if (!passes_.between_passes()) {
      throw Error("with_gathered", "a pass is open: its forward ran and its backward did not. Gather between passes.");
    }
    if (inside_gathered_) throw Error("with_gathered", "is called inside itself. Name all parameters in one call.");
    stepper_.settle_all();
    shoal::with_gathered(gather_parts(), addresses_of(names), access, [&] {
      inside_gathered_ = true;
      try {
        use();
      } catch (...) {
        inside_gathered_ = false;
        throw;
      }
      inside_gathered_ = false;
    });
  }

  int begin_gathered(const std::vector<std::string>& names) {
    check_sound("gather");
    stepper_.settle_all();
    auto gathered = std::make_unique<GatheredParams>(gather_parts(), addresses_of(names));
    gathered_[++last_gathered_] = std::move(gathered);
    return last_gathered_;
  }

  void finish_gathered(int id, std::optional<int> written_by) {
    const auto found = gathered_.find(id);
    SHOAL_CHECK(found != gathered_.end(), "no gather {} is open", id);
    const std::unique_ptr<GatheredParams> gathered = std::move(found->second);
    gathered_.erase(found);
    stepper_.settle_all();  // or the update would be of what was written
    if (written_by) gathered->take_written(*written_by);
  }

  // Between the engine's work and the model's stands nothing but the order of one stream.
  void check_stream(int unit) const {
    if (!device_.is_cuda() || current_stream(device_) == queue_->stream()) return;
    throw Error("unit " + layout_.units[static_cast<size_t>(unit)].name,
                "runs on another CUDA stream than the one that was current when the engine was built. Build the engine "
                "on the stream that the model runs on.");
  }

  void check_usable(int unit) const {
    for (const auto& [id, gathered] : gathered_) {
      if (std::find(gathered->partly().begin(), gathered->partly().end(), unit) == gathered->partly().end()) continue;
      throw Error("unit " + layout_.units[static_cast<size_t>(unit)].name,
                  "is used while some of its parameters are gathered for the user. Gather all of its parameters, or "
                  "none.");
    }
  }

  void check_between_steps(const char* place) {
    check_sound(place);
    if (passes_.between_passes() && micro_step_ == 0 && !inside_gathered_) return;
    throw Error(place, "a step is under way. Read and write the state after step(), before the next forward.");
  }

  // The state is that of the last step until the next one is taken, so it may be read between micro-steps too.
  void check_readable(const std::string& place) {
    check_sound(place.c_str());
    if (passes_.between_passes() && !inside_gathered_) return;
    throw Error(place,
                inside_gathered_
                    ? "parameters are gathered for the user. Leave with_gathered first."
                    : "a pass is open: its forward ran and its backward did not. Call backward first, or run a forward "
                      "that has none without gradients (torch.no_grad).");
  }

  void await_gradients() {
    check_sound("gradients");
    if (!passes_.between_passes() || micro_step_ == 0 || !reduced_) {
      throw Error("gradients", "there are none: they are complete after the backward that ends a step, until step().");
    }
    gradients_.wait();
  }

  std::vector<StateRun> trained_weights(std::vector<StateRun> runs) const {
    std::erase_if(runs, [&](const StateRun& run) {
      return run.kind != StateKind::weight || !state_access_.params()[static_cast<size_t>(run.param)].trainable;
    });
    return runs;
  }

  EngineProgress progress() {
    pending_.read_all();
    EngineProgress progress;
    stepper_.save(progress);
    const at::Tensor state = generator_.get_state();
    progress.random_state.assign(state.const_data_ptr<uint8_t>(), state.const_data_ptr<uint8_t>() + state.numel());
    return progress;
  }

  void publish_weights(const char* place) {
    check_readable(place);
    stepper_.settle_all();
    for (int unit = 0; unit < static_cast<int>(layout_.units.size()); ++unit) weights_.publish(unit);
    weights_.finish_publish();
  }

  void finish_restore(const EngineProgress& progress) {
    check_between_steps("finish_restore");
    publish_weights("finish_restore");
    pending_.read_all();
    stepper_.restore(progress);
    if (progress.random_state.empty()) return;
    const at::Tensor state = generator_.get_state();
    if (progress.random_state.size() != static_cast<size_t>(state.numel())) {
      if (weights_channel_->notes().rank() == 0) {
        fmt::print(stderr,
                   "shoal: the saved random numbers are of another kind of device; they begin anew from the seed\n");
      }
      return;
    }
    std::copy(progress.random_state.begin(), progress.random_state.end(), state.mutable_data_ptr<uint8_t>());
    generator_.set_state(state);
  }

  MemoryReport memory() const {
    MemoryReport report;
    MemoryOptions planned = memory_options(config_, device_.is_cuda());
    planned.gradients = gradients_.options();
    report.planned = plan_memory(layout_, planned);
    report.held.weights = ledger_->line(MemoryKind::weights).nbytes;
    report.held.gradients = ledger_->line(MemoryKind::gradients).nbytes;
    report.held.states = ledger_->line(MemoryKind::states).nbytes;
    report.held.gather_arena = ledger_->line(MemoryKind::gather_arena).nbytes;
    report.held.reduce_slots = ledger_->line(MemoryKind::reduce_slots).nbytes;
    report.held.state_ring = ledger_->line(MemoryKind::state_ring).nbytes;
    report.held.host_weights = ledger_->line(MemoryKind::host_weights).nbytes;
    report.held.host_gradients = ledger_->line(MemoryKind::host_gradients).nbytes;
    report.held.host_states = ledger_->line(MemoryKind::host_states).nbytes;
    report.held.disk_weights = ledger_->line(MemoryKind::disk_weights).nbytes;
    report.held.disk_states = ledger_->line(MemoryKind::disk_states).nbytes;
    report.held.disk_buffers = ledger_->line(MemoryKind::disk_buffers).nbytes;
    report.user_gathered = ledger_->line(MemoryKind::user_gather).nbytes;
    report.host_activations = ledger_->line(MemoryKind::host_inputs).nbytes;
    return report;
  }

  Traffic traffic() const {
    const Traffic weights = weights_channel_->traffic();
    const Traffic gradients = gradients_channel_->traffic();
    return {weights.sent_nbytes + gradients.sent_nbytes, weights.received_nbytes + gradients.received_nbytes,
            weights.collectives + gradients.collectives};
  }

  void check_unit(int unit) const {
    if (unit >= 0 && unit < static_cast<int>(layout_.units.size())) return;
    throw Error("engine",
                fmt::format("there is no unit {}: the model has {}, counted from 0.", unit, layout_.units.size()));
  }

  Config config_;
  Blueprint blueprint_;
  ModelLayout layout_;
  at::Device device_;
  std::unique_ptr<Queue> queue_;    // on which the rank computes
  std::shared_ptr<Ledger> ledger_;  // shared with slabs that outlive the engine
  KeptStates states_;
  Updater updater_;
  std::unique_ptr<ScratchFile> shard_file_;   // until the weights have it
  std::optional<Channel> weights_channel_;    // gathers and publishes
  std::optional<Channel> gradients_channel_;  // reductions and the norm
  Weights weights_;
  Gradients gradients_;
  StateAccess state_access_;
  Passes passes_;
  ModuleCalls calls_{passes_};
  std::unique_ptr<HostInputs> host_inputs_;  // nothing: inputs of recomputed regions stay where they are
  Stepper stepper_;
  bool timing_ = false;  // a Stopwatch is running
  PendingSteps pending_{stepper_, passes_.alive(), timing_,
                        [this](const StepResult& result, const StepTimes& times) { print(result, times); }};
  at::Generator generator_;
  bool hooked_ = false;            // hooks of modules report uses, and every forward begins with one
  bool loss_is_scaled_ = false;    // the next one from outside
  bool reduced_ = false;           // the last backward ended a step
  bool accumulates_more_ = false;  // than the config says, in a step
  std::optional<bool> boundary_;   // told from outside; nothing: by the count of micro-steps
  int64_t micro_step_ = 0;         // of the step that is being accumulated
  StepTimes times_;
  StepTimes waited_;       // disk and host: until the last step
  int64_t own_steps_ = 0;  // that this engine has taken with the config's optimizer, or skipped
  int ranks_on_gpu_ = 1;
  bool updates_outside_ = false;  // the last step's update came from outside: it reads states by itself
  bool inside_gathered_ = false;
  std::map<int, std::unique_ptr<GatheredParams>> gathered_;  // begun and not finished
  int last_gathered_ = 0;
};

Engine::Engine(std::vector<Unit> units, const Config& config, Group& world, EngineOptions options) {
  const Config found = placed(units, config, world, options);
  try {
    impl_ = std::make_unique<Impl>(units, found, world, options);
  } catch (const NoDeviceMemory& error) {  // what the engine had taken is given back
    throw explain(no_room({units, found, options.groups.size(), world.size()}, error.asked(),
                          cuda::facts_of(options.device.index())));
  }
}

Engine::~Engine() = default;

Engine::Tensors Engine::run(int unit, const Tensors& inputs, const Forward& forward) {
  return impl_->run(unit, inputs, forward);
}

at::Tensor Engine::run(int unit, const at::Tensor& input, const std::function<at::Tensor(const at::Tensor&)>& forward) {
  return impl_->run(unit, {input}, [&](const Tensors& inputs) { return Tensors{forward(inputs.at(0))}; }).at(0);
}

void Engine::enter(int unit, const Tensors& inputs) {
  impl_->check_use(unit);
  impl_->calls_.enter(unit, inputs);
}
void Engine::exit(int unit, const Tensors& outputs) { impl_->calls_.exit(unit, outputs); }
void Engine::abandon(int unit) { impl_->calls_.abandon(unit); }

void Engine::read_outside_uses(int unit, const Tensors& inputs) {
  impl_->check_use(unit);
  impl_->calls_.read_outside_uses(unit, inputs);
}
bool Engine::in_backward() const { return impl_->passes_.in_backward(); }

void Engine::begin_backward(const at::Tensor& root) { impl_->begin_backward(root); }
void Engine::finish_backward() { impl_->finish_backward(); }
void Engine::abandon_backward(const std::string& because) { impl_->abandon_backward(because); }
void Engine::expect_scaled_loss() { impl_->loss_is_scaled_ = true; }
void Engine::set_boundary(std::optional<bool> is_last) {
  if (!impl_->config_.batch.managed_gradient_accumulation) {
    throw Error("boundary", "with managed_gradient_accumulation false, each step() ends a step. Set no boundary.");
  }
  impl_->boundary_ = is_last;
}
bool Engine::at_boundary() const { return impl_->is_last(); }

void Engine::set_betas(double beta1, double beta2) { impl_->stepper_.set_betas(beta1, beta2); }
void Engine::set_groups(const std::vector<GroupValues>& groups) { impl_->stepper_.set_groups(groups); }

Engine::Tensors Engine::recompute(const Tensors& inputs, const Forward& forward) {
  return shoal::recompute({impl_->passes_, impl_->generator_, impl_->host_inputs_.get()}, inputs, forward);
}

at::Tensor Engine::recompute(const at::Tensor& input, const std::function<at::Tensor(const at::Tensor&)>& forward) {
  return recompute(Tensors{input}, [forward](const Tensors& inputs) { return Tensors{forward(inputs.at(0))}; }).at(0);
}

void Engine::evaluate(const std::function<void()>& forward) {
  double evaluation = 0;  // no part of a step's times
  Stopwatch watch(evaluation, impl_->timing_);
  impl_->check_sound("evaluate");
  impl_->passes_.begin_evaluation();
  at::NoGradGuard without_graph;
  try {
    forward();
  } catch (...) {
    // The next pass begins clean, and the other ranks' gathers have this rank.
    if (impl_->passes_.lost_because().empty()) impl_->passes_.finish_evaluation();
    throw;
  }
  impl_->passes_.finish_evaluation();
}

bool Engine::evaluating() const { return impl_->passes_.evaluating(); }

void Engine::backward(const at::Tensor& loss) { impl_->backward(loss); }

StepResult Engine::step(const OutsideUpdate& update) { return step_later(update).result(); }
PendingStep Engine::step_later(const OutsideUpdate& update) { return impl_->step_later(update); }

void Engine::with_gathered(const std::vector<std::string>& names, Access access, const std::function<void()>& use) {
  impl_->with_gathered(names, access, use);
}

int Engine::begin_gathered(const std::vector<std::string>& names) { return impl_->begin_gathered(names); }
void Engine::finish_gathered(int id, std::optional<int> written_by) { impl_->finish_gathered(id, written_by); }

const std::vector<ParamInfo>& Engine::params() const { return impl_->state_access_.params(); }
std::vector<StateRun> Engine::owned_state() const { return impl_->state_access_.owned(); }
std::vector<StateRun> Engine::kept_state() const { return impl_->state_access_.kept(); }

void Engine::read_state(const StateRun& part, float* values) const {
  impl_->check_readable("read_state");
  impl_->stepper_.settle_all();
  impl_->state_access_.read(part, values);
}

void Engine::write_state(const StateRun& part, const float* values) {
  impl_->check_between_steps("write_state");
  impl_->stepper_.settle_all();
  impl_->state_access_.write(part, values);
}

void Engine::edit_state(const StateRun& part, const float* values) {
  impl_->check_readable("edit_state");
  impl_->stepper_.settle_all();  // nothing counts that was updated with the old one
  impl_->state_access_.write(part, values);
}

void Engine::finish_edits() { impl_->publish_weights("finish_edits"); }

std::vector<StateRun> Engine::owned_gradients() {
  impl_->await_gradients();
  return impl_->trained_weights(impl_->state_access_.owned());
}
std::vector<StateRun> Engine::kept_gradients() {
  impl_->await_gradients();
  return impl_->trained_weights(impl_->state_access_.kept());
}
void Engine::read_gradient(const StateRun& part, float* values) const {
  impl_->state_access_.read_gradient(part, impl_->gradients_, values);
}
void Engine::write_gradient(const StateRun& part, const float* values) {
  impl_->await_gradients();
  impl_->stepper_.settle_all();  // nothing counts that was updated with the old one
  impl_->state_access_.write_gradient(part, values, impl_->gradients_);
}

void Engine::check_readable(const std::string& place) const { impl_->check_readable(place); }
int64_t Engine::accumulated() const { return impl_->micro_step_; }
EngineProgress Engine::progress() const { return impl_->progress(); }
void Engine::finish_restore(const EngineProgress& progress) { impl_->finish_restore(progress); }

int Engine::unit_index(const std::string& name) const {
  const std::vector<UnitLayout>& units = impl_->layout_.units;
  std::vector<std::string> names;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    if (units[unit].name == name) return static_cast<int>(unit);
    names.push_back(units[unit].name);
  }
  const std::string near = nearest_word(name, names);
  throw Error("engine",
              fmt::format("there is no unit {}.{}", name, near.empty() ? "" : fmt::format(" Did you mean {}?", near)));
}

at::Device Engine::device() const { return impl_->device_; }
at::Generator& Engine::generator() { return impl_->generator_; }
double Engine::loss_scale() const { return impl_->loss_scale(); }
MemoryReport Engine::memory() const { return impl_->memory(); }
Error Engine::explain_out_of_memory(const std::string& phase, const std::string& said) const {
  return explain(impl_->out_of_memory(phase, said));
}
Traffic Engine::traffic() const { return impl_->traffic(); }
double Engine::waited_seconds() const { return impl_->waited_seconds(); }
DiskTraffic Engine::disk() const { return impl_->disk_counters(); }
HostTraffic Engine::host() const {
  Updater& updater = impl_->updater_;
  const Ferry::Counters counters = impl_->states_.memory().streamed();
  const HostUpdates::Ahead ahead = updater.ahead();
  return {.to_device_nbytes = counters.brought_nbytes,
          .to_host_nbytes = counters.taken_nbytes,
          .waited_seconds = impl_->host_seconds(),
          .host_updated_numel = updater.host_updated_numel(),
          .ahead_numel = ahead.updated_numel,
          .taken_ahead_numel = ahead.taken_numel};
}
const Config& Engine::config() const { return impl_->config_; }

}  // namespace shoal
