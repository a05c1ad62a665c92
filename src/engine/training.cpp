// See training.h.
#include "engine/training.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>

#include <cstdio>
#include <utility>

#include "base/text.h"
#include "device/cuda.h"
#include "engine/leaf_seed.h"
#include "engine/options.h"
#include "engine/own_thread_backward.h"
#include "engine/stopwatch.h"
#include "shard/compute_queue.h"
#include "shoal/error.h"

namespace shoal {

Training::Training(EngineParts& parts, UserGathers& gathers, Meters& meters, const EngineOptions& options)
    : parts_(parts),
      gathers_(gathers),
      meters_(meters),
      tuning_(parts),
      micro_steps_(parts.config.batch),
      hooked_(options.backward_from_outside),
      watch_(parts.config, options.watch_nonfinite, parts.ranks()),
      pending_(parts.stepper, parts.passes.alive(), timing_, [this](const PendingStep::State& step) {
        if (parts_.rank() == 0) print_step(parts_.config, step.result, step.times);
        watch_.see(step.result, step.losses);
      }) {
  parts_.passes.when_reduced([this](int unit) {
    const bool is_own = !updates_outside_ && !accumulates_more_;
    if (micro_steps_.next_ends_step() && is_own) parts_.stepper.begin_ahead(unit);
  });
  if (hooked_) parts_.passes.when_backward_begins_outside([this] { begin_outside_backward(); });
}

void Training::check_unit(int unit) const {
  if (unit >= 0 && unit < static_cast<int>(parts_.layout.units.size())) return;
  throw Error("engine",
              fmt::format("there is no unit {}: the model has {}, counted from 0.", unit, parts_.layout.units.size()));
}

// Between the engine's work and the model's stands nothing but the order of one stream.
void Training::check_stream(int unit) const {
  if (!parts_.on_gpu() || current_stream(parts_.device) == parts_.queue->stream()) return;
  throw Error("unit " + parts_.layout.units[static_cast<size_t>(unit)].name,
              "runs on another CUDA stream than the one that was current when the engine was built. Build the engine "
              "on the stream that the model runs on.");
}

void Training::check_use(int unit) {
  check_unit(unit);
  if (gathers_.inside()) throw Error("run", "a unit is used inside with_gathered. Leave it first.");
  parts_.check_sound("run");
  gathers_.check_usable(unit);
  check_stream(unit);
}

std::optional<uint64_t> Training::next_leaf_seed() const {
  const int64_t seed = parts_.config.shoal.leaf_seed;
  if (seed < 0) return std::nullopt;
  const Mesh& mesh = parts_.layout.mesh;
  const int ranks = mesh.data_ranks();
  const int64_t leaf = leaf_.value_or(micro_steps_.count() * ranks + mesh.data_rank(parts_.rank()));
  return leaf_seed(static_cast<uint64_t>(seed), {.step = parts_.stepper.taken_steps(),
                                                 .micro_step = leaf / ranks,
                                                 .data_rank = static_cast<int>(leaf % ranks),
                                                 .data_ranks = ranks});
}

void Training::begin_leaf() {
  const bool trains = at::GradMode::is_enabled() && !parts_.passes.evaluating();
  if (!trains || !parts_.passes.between_passes()) return;
  if (const std::optional<uint64_t> seed = next_leaf_seed()) parts_.generator.set_current_seed(*seed);
}

Training::Tensors Training::run(int unit, const Tensors& inputs, const Engine::Forward& forward) {
  check_use(unit);
  begin_leaf();
  Stopwatch watch(times_.forward, timing_);
  parts_.passes.enter(unit, inputs);
  Tensors outputs;
  try {
    outputs = forward(inputs);
  } catch (const c10::OutOfMemoryError& error) {
    abandon(unit);
    throw explain(out_of_memory("forward", error.what_without_backtrace()));
  } catch (...) {
    abandon(unit);
    throw;
  }
  parts_.passes.exit(unit, outputs);
  return outputs;
}

void Training::abandon(int unit) {
  try {
    parts_.passes.abandon(unit);
  } catch (const Error&) {  // the engine goes no further and says so; what came first is what the caller hears
  }
}

OutOfMemory Training::out_of_memory(const std::string& phase, const std::string& said) const {
  OutOfMemory event;
  event.unit = parts_.layout.units[static_cast<size_t>(parts_.passes.unit_at_work())].name;
  event.phase = phase;
  event.said = said;
  event.memory = meters_.memory();
  event.stage = parts_.config.zero.stage;
  event.world = parts_.layout.mesh.world();
  event.micro_batch = parts_.config.batch.micro_batch_size;
  if (parts_.on_gpu()) event.device_nbytes = cuda::facts_of(parts_.device.index()).total_nbytes;
  return event;
}

void Training::evaluate(const std::function<void()>& forward) {
  double evaluation = 0;  // no part of a step's times
  Stopwatch watch(evaluation, timing_);
  parts_.check_sound("evaluate");
  Passes& passes = parts_.passes;
  passes.begin_evaluation();
  at::NoGradGuard without_graph;
  try {
    forward();
  } catch (...) {
    // The next pass begins clean, and the other ranks' gathers have this rank.
    if (!parts_.soundness.gathers_are_lost()) passes.finish_evaluation();
    throw;
  }
  passes.finish_evaluation();
}

double Training::begin_backward(const at::Tensor& root, bool caller_divides) {
  loss_is_scaled_ = false;
  const double factor = prepare_backward(caller_divides);
  watch_.add_loss(root);
  parts_.passes.begin_backward(root);
  tell_gradients();
  return factor;
}

double Training::prepare_backward(bool caller_divides) {
  parts_.check_sound("backward");
  if (parts_.passes.in_backward()) throw Error("backward", "is called inside a backward of the same engine.");
  if (parts_.passes.evaluating()) {
    throw Error("backward", "a forward without gradients was interrupted. Run a forward of the model first.");
  }
  if (hooked_ && parts_.passes.between_passes()) {
    throw Error(
        "backward",
        "no forward of the model has run since the last backward and step, or the backward of its loss is over. "
        "Pass the loss of a new forward, once; add up losses that share a forward.");
  }
  parts_.stepper.settle_all();  // gradients will be overwritten
  const bool grows = !micro_steps_.next_ends_step() && parts_.config.batch.accumulation_steps == 1;
  if (micro_steps_.has_gradients() || grows) accumulate_more();
  if (micro_steps_.count() == 0) caller_divides_ = caller_divides;
  if (caller_divides == caller_divides_) return 1;
  const auto steps = static_cast<double>(parts_.config.batch.accumulation_steps);
  return caller_divides ? steps : 1 / steps;
}

// More backwards come before a step than the config says: what is reduced already stays, and memory for the sum is
// taken when it is first needed.
void Training::accumulate_more() {
  if (accumulates_more_) return;
  const Config& config = parts_.config;
  const bool moves_states = parts_.on_gpu() && config.zero.offload_optimizer.tier_in_use() != Tier::device;
  if (moves_states || config.shoal.speculative_update) {
    throw Error("backward",
                fmt::format("more backwards come before a step than gradient_accumulation_steps, {}, and with "
                            "optimizer states off the GPU, or updated ahead, the memory to add them up in is planned "
                            "before the run. Set gradient_accumulation_steps to the number of backwards in a step.",
                            config.batch.accumulation_steps));
  }
  parts_.gradients.wait();
  const auto held = [&] {
    return parts_.ledger->line(MemoryKind::gradients).nbytes + parts_.ledger->line(MemoryKind::reduce_slots).nbytes;
  };
  const size_t before = held();
  try {
    parts_.gradients.accumulate_more();
  } catch (const std::exception& error) {
    parts_.soundness.backward_failed(first_line(error.what()));
    throw;
  }
  parts_.updater.find_gradients_again();
  accumulates_more_ = true;
  if (parts_.rank() != 0 || held() <= before) return;
  fmt::print(stderr,
             "shoal: more backwards come before a step than gradient_accumulation_steps, {}: gradients are added up, "
             "in {} more than planned on each rank\n",
             config.batch.accumulation_steps, format_nbytes(held() - before));
}

void Training::tell_gradients() {
  parts_.gradients.set_last(micro_steps_.next_ends_step());
  parts_.gradients.set_factor(gradient_factor(parts_.config, parts_.layout.mesh, caller_divides_));
  if (micro_steps_.next_ends_step() && !updates_outside_) parts_.updater.read_ahead();
}

void Training::finish_backward() {
  parts_.soundness.check("backward");
  micro_steps_.begin_end();
  parts_.passes.finish_backward();
  micro_steps_.add();
  parts_.passes.set_micro_step(micro_steps_.count(), micro_steps_.has_gradients());
}

// A gradient came and Engine::backward was not called: autograd itself says when it is through.
void Training::begin_outside_backward() {
  if (!std::exchange(loss_is_scaled_, false) && loss_scale() != 1) {
    throw Error("backward", fmt::format("loss.backward() does not know the loss scale, {}. Call "
                                        "engine.backward(loss), or engine.scale(loss).backward().",
                                        loss_scale()));
  }
  parts_.passes.begin_running_backward(prepare_backward(/*caller_divides=*/false));
  watch_.forget_losses();
  tell_gradients();
  torch::autograd::Engine::get_default_engine().queue_callback([this, alive = parts_.passes.alive()] {
    if (!alive.expired()) finish_backward();
  });
}

void Training::backward(const at::Tensor& loss) {
  if (loss.numel() != 1 || !loss.requires_grad()) {
    throw Error("backward",
                fmt::format("the loss has {} elements and {} a graph. Pass a scalar that the model computed.",
                            loss.numel(), loss.requires_grad() ? "has" : "has not"));
  }
  Stopwatch watch(times_.backward, timing_);
  // In fp32: a 16-bit loss could not hold the scale.
  const at::Tensor root = loss.scalar_type() == at::kFloat ? loss : loss.to(at::kFloat);
  const double factor = begin_backward(root, /*caller_divides=*/false);
  // Torch has one thread for all backward passes of a GPU. Ranks that are threads of one process would wait for each
  // other in it, so each goes through its backward in its own thread.
  const OwnThreadBackward own_thread;
  try {
    torch::autograd::backward({root}, {backward_scale(root, factor)});
  } catch (const c10::OutOfMemoryError& error) {
    parts_.soundness.backward_failed("the GPU's memory was full.");
    throw explain(out_of_memory("backward", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    parts_.soundness.backward_failed(first_line(error.what()));
    throw;
  }
  finish_backward();
}

// What the loss is multiplied by, but for the factor: the loss scale. One that moves is where the steps that are not
// read yet will have left it.
at::Tensor Training::backward_scale(const at::Tensor& root, double factor) {
  const at::TensorOptions options = root.options().requires_grad(false);
  if (float* moving = parts_.stepper.moving_backward_scale()) {
    const at::Tensor scale = at::from_blob(moving, {1}, options).reshape(root.sizes());
    return factor == 1 ? scale.clone() : at::mul(scale, factor);
  }
  return at::full(root.sizes(), parts_.stepper.loss_scale() * factor, options);
}

double Training::loss_scale() {
  if (parts_.stepper.moving_backward_scale() != nullptr) pending_.read_all();
  return parts_.stepper.loss_scale();
}

OutsideUpdate Training::told_of(const OutsideUpdate& update) {
  return [this, &update](double grad_scale) {
    struct Inside {
      explicit Inside(bool& flag) : flag(flag) { flag = true; }
      ~Inside() { flag = false; }
      bool& flag;
    } inside(updating_outside_);
    update(grad_scale);
  };
}

PendingStep Training::step_later(const OutsideUpdate& update) {
  parts_.check_sound("step");
  if (micro_steps_.count() == 0) {
    throw Error("step", "no gradient has come since the last step. Call backward(loss) first.");
  }
  loss_is_scaled_ = false;
  if (!micro_steps_.last_ends_step()) return PendingStep(pending_.add_inside());
  if (!micro_steps_.has_gradients()) {
    throw Error("step",
                "the last backward did not end a step: the boundary was false when it ran. Set the boundary before "
                "the backward.");
  }
  parts_.weights.check_unchanged();
  parts_.passes.drop_forward();
  pending_.make_room();
  std::shared_ptr<PendingStep::State> step;
  {
    Stopwatch watch(times_.step, timing_);
    micro_steps_.begin_step();
    parts_.passes.set_micro_step(0, /*awaits_step=*/false);
    parts_.stepper.take(update ? told_of(update) : update);
    step = pending_.add();  // before anything else can throw: it is taken
    step->losses = watch_.take_losses();
    meters_.count_waits(times_);
    if (gathers_.any_open()) parts_.stepper.settle_all();  // what the user writes there comes after it
  }
  parts_.updater.end_step();
  updates_outside_ = update != nullptr;
  if (!updates_outside_) {
    tuning_.after_step();
    parts_.updater.read_ahead();
  }
  step->times = std::exchange(times_, {});
  // What a step that is skipped lost to rounding is no part of any other.
  if (parts_.gradients.keeps_errors() && !PendingStep(step).result().applied) parts_.gradients.forget_errors();
  return PendingStep(step);
}

void Training::drop_gradients() {
  parts_.check_sound("zero_grad");
  if (parts_.passes.in_backward()) throw Error("zero_grad", "is called inside a backward. Call it after that.");
  if (micro_steps_.count() == 0) return;
  parts_.stepper.settle_all();  // and takes back what it updated ahead of a step
  parts_.gradients.wait();
  parts_.gradients.forget_errors();  // of what is dropped too
  watch_.take_losses();
  micro_steps_.begin_step();
  parts_.passes.set_micro_step(0, /*awaits_step=*/false);
  loss_is_scaled_ = false;
}

void Training::await_gradients() {
  parts_.check_sound("gradients");
  if (!parts_.passes.between_passes() || !micro_steps_.has_gradients()) {
    throw Error("gradients", "there are none: they are complete after the backward that ends a step, until step().");
  }
  parts_.gradients.wait();
}

}  // namespace shoal
