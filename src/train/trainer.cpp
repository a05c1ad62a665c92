// See trainer.h.
#include "train/trainer.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "base/text.h"
#include "checkpoint/exchange.h"
#include "checkpoint/load.h"
#include "engine/blueprint.h"
#include "launch/rank_environment.h"
#include "plan/from_config.h"
#include "shoal/checkpoint.h"
#include "shoal/device.h"
#include "shoal/error.h"
#include "train/agreement.h"
#include "train/banner.h"
#include "train/fitted_run.h"
#include "train/metrics_file.h"
#include "train/nonfinite_steps.h"
#include "train/progress.h"
#include "train/run_facts.h"
#include "train/run_lines.h"
#include "train/run_lock.h"
#include "train/step_exchange.h"
#include "train/stop_signal.h"
#include "train/trace.h"

namespace shoal::train {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kSignalExit = 128;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Each rank looks at a part of the tokens.
void check_tokens_together(const PreparedRun& run, Group& world) {
  checkpoint::act_together(world, {"check", "tokens"}, "--data " + run.source->describe(), [&] {
    check_tokens(*run.source, run.vocabulary, {world.rank(), world.size()});
  });
}

BatchPlace place_of(const Config& config, const Group& world) {
  const Mesh mesh = mesh_of(config, world.size());
  return {config.batch, mesh.data_rank(world.rank()), mesh.data_ranks()};
}

// One rank's run, from the first step it takes to the last.
class Trainer {
 public:
  Trainer(const TrainOptions& options, const PreparedRun& run, const FittedRun& fitted, Group& world, at::Device device,
          int threads)
      : options_(options),
        run_(run),
        fitted_(fitted),
        config_(fitted.config),
        world_(world),
        threads_(threads),
        batches_(*run.source, run.cut, place_of(config_, world)),
        position_(run.start),
        progress_({.out = stdout,
                   .columns = columns_of_terminal(),
                   .quiet = world.rank() != 0,
                   .steps = options.steps,
                   .last = options.stop_at > 0 ? std::min(options.stop_at, options.steps) : options.steps,
                   .log_every = options.log_every}),
        exchange_(world, mesh_of(config_, world.size())),
        nonfinite_(config_.fp16, options.nonfinite_steps),
        // Every parameter has a source of its first values, equal on every rank.
        engine_(run.model->units(), config_, world,
                {.device = device, .seed = options.seed, .broadcast_weights = false}),
        lag_(static_cast<size_t>(options.read_behind.value_or(device.is_cuda() ? 1 : 0))) {}

  int run() {
    print_banner();
    if (options_.out.empty()) progress_.say("no --out: nothing is saved");
    resume();
    open_files();
    const int64_t last = options_.stop_at > 0 ? std::min(options_.stop_at, options_.steps) : options_.steps;
    if (step_ >= last) progress_.say(fmt::format("step {} is reached already: nothing to do", last));
    choose_traced(last);
    while (step_ < last && stop_signal_ == 0) {
      if (trace_) trace_->begin_step(step_ + 1);
      begin_step();
      const bool evaluates = options_.eval_every > 0 && step_ % options_.eval_every == 0;
      const bool saves = options_.save_every > 0 && step_ % options_.save_every == 0;
      const bool ends_trace = traced_ && traced_->last == step_;  // on every rank: they read steps together
      finish_steps(evaluates || saves || ends_trace || step_ == last ? 0 : lag_, last);
      if (trace_ && ends_trace) await_gpu();
      if (const std::string said = trace_ ? trace_->end_step(step_) : ""; !said.empty()) progress_.say(said);
      if (evaluates) evaluate();
      if (saves) save();
    }
    finish_steps(0, last);
    if (trace_) end_trace();
    return finish(last);
  }

 private:
  // A step whose result is not read yet.
  struct BegunStep {
    int64_t step = 0;
    int64_t samples = 0;             // with it
    std::vector<at::Tensor> losses;  // of this rank's micro-steps, in host memory
    PendingStep pending;
  };
  // A moment, and what the run had waited for until then.
  struct Mark {
    Clock::time_point time;
    double waited = 0;
    HostTraffic host;
    DiskTraffic disk;
  };
  Mark now() const {
    return {Clock::now(), engine_.meters().waited_seconds(), engine_.meters().host(), engine_.meters().disk()};
  }

  void print_banner() {
    if (world_.rank() != 0) return;
    for (const std::string& choice : fitted_.choices) progress_.say(choice);
    const models::ModelInfo& info = run_.model->info();
    BannerFacts facts;
    facts.model = fmt::format("{}: {} parameters", info.name, format_count(info.numel));
    facts.weights = weights_text(info, options_.seed, run_.checkpoint);
    facts.data = fmt::format("{}: {} tokens, {} samples of {} to train on, {} for validation", run_.source->describe(),
                             format_count(run_.source->numel()), format_count(batches_.train_samples()),
                             run_.cut.sequence, format_count(batches_.validation_samples()));
    facts.config = config_;
    facts.layout = layout_of(run_.model->units(), config_, world_.size());
    facts.transport = world_.transport_name();
    facts.threads = threads_;
    facts.on_gpu = engine_.device().is_cuda();
    facts.recompute = models::describe(fitted_.recomputed, info.layers);
    facts.host_activations = fitted_.activations.host;
    facts.products = prepare_products(engine_.device(), dtype_of(config_.precision));
    std::string text = banner(facts);
    text.pop_back();  // say() ends the line
    progress_.say(text);
  }

  void resume() {
    if (run_.checkpoint.empty()) return;
    const LoadedCheckpoint loaded = load_checkpoint(engine_, world_, run_.checkpoint);
    position_.samples = resumed_samples(loaded.extra, run_.start);
    step_ = first_step_ = loaded.step;
    last_saved_ = options_.resume == "auto" ? step_ : -1;
    const ResumeFacts facts = {.ranks = world_.size(),
                               .threads = threads_,
                               .optimizer = checkpoint::optimizer_in(config_.to_json()),
                               .batch = config_.batch.train_batch_size,
                               .samples = position_.samples};
    for (const std::string& line : resume_lines(loaded, facts)) progress_.say(line);
  }

  void open_files() {
    if (options_.out.empty() || world_.rank() != 0) return;
    const fs::path folder = options_.out;
    write_run_facts(folder, options_, run_.cut, config_, {threads_, world_.size(), world_.transport_name()});
    metrics_ = std::make_unique<MetricsFile>((folder / "metrics.jsonl").string(), step_);
    evaluations_ = std::make_unique<MetricsFile>((folder / "eval.jsonl").string(), step_);
  }

  // Loss of rows [micro batch, sequence + 1].
  at::Tensor loss_of(const std::vector<int64_t>& tokens) {
    const int64_t row = run_.cut.sequence + 1;
    at::Tensor rows = at::empty({static_cast<int64_t>(tokens.size()) / row, row}, on_host(at::kLong));
    std::copy(tokens.begin(), tokens.end(), rows.mutable_data_ptr<int64_t>());
    rows = rows.to(engine_.device(), /*non_blocking=*/true);
    return run_.model->loss(engine_, rows.slice(1, 0, row - 1).contiguous(), rows.slice(1, 1, row).contiguous());
  }

  // For memory that a GPU copies from and to while the host goes on.
  at::TensorOptions on_host(at::ScalarType dtype) const {
    return at::TensorOptions(dtype).pinned_memory(engine_.device().is_cuda());
  }

  void begin_step() {
    if (begun_.empty()) mark_ = now();
    std::vector<at::Tensor> losses;
    std::optional<PendingStep> pending;
    for (int64_t micro_step = 0; micro_step < config_.batch.accumulation_steps; ++micro_step) {
      const at::Tensor loss = loss_of(batches_.train(position_.samples, micro_step));
      engine_.backward(loss);
      // There when the step's result is: it comes before it on the GPU's stream.
      losses.push_back(at::empty(loss.sizes(), on_host(loss.scalar_type())));
      losses.back().copy_(loss.detach(), /*non_blocking=*/true);
      pending = engine_.step_later();
    }
    position_.samples += config_.batch.train_batch_size;
    ++step_;
    begun_.push_back({step_, position_.samples, std::move(losses), *pending});
  }

  // Reads and tells what became of steps, until `left` are on their way.
  void finish_steps(size_t left, int64_t last) {
    for (; begun_.size() > left; begun_.pop_front()) finish_step(begun_.front(), last);
  }

  void finish_step(const BegunStep& begun, int64_t last) {
    const StepResult& result = begun.pending.result();
    std::vector<double> losses;
    for (const at::Tensor& loss : begun.losses) losses.push_back(loss.item<double>());
    const StepNews news = exchange_.share(losses, signals_.received());
    if (stop_signal_ == 0) stop_signal_ = news.stop_signal;

    StepMetrics metrics;
    metrics.step = begun.step;
    metrics.loss = news.mean_loss;
    metrics.grad_norm = result.grad_norm;
    metrics.lr = result.lrs.at(0);
    metrics.loss_scale = result.loss_scale;
    metrics.skipped = !result.applied;
    metrics.tokens = begun.samples * run_.cut.sequence;
    const Mark before = std::exchange(mark_, now());
    metrics.step_ms = std::chrono::duration<double, std::milli>(mark_.time - before.time).count();
    metrics.tokens_per_s =
        static_cast<double>(config_.batch.train_batch_size * run_.cut.sequence) / metrics.step_ms * 1e3;
    metrics.wait_comm_ms = (mark_.waited - before.waited + news.waited_seconds) * 1e3;
    metrics.wait_host_ms = (mark_.host.waited_seconds - before.host.waited_seconds) * 1e3;
    metrics.wait_disk_ms = (mark_.disk.waited_seconds - before.disk.waited_seconds) * 1e3;
    metrics.host_to_gpu_nbytes = mark_.host.to_device_nbytes - before.host.to_device_nbytes;
    metrics.gpu_to_host_nbytes = mark_.host.to_host_nbytes - before.host.to_host_nbytes;
    metrics.disk_read_nbytes = mark_.disk.read_nbytes - before.disk.read_nbytes;
    metrics.disk_written_nbytes = mark_.disk.written_nbytes - before.disk.written_nbytes;
    if (metrics_ != nullptr) append(*metrics_, to_line(metrics));
    nonfinite_.see({begun.step, metrics.loss, result.applied, result.loss_scale, result.overflow_unit});
    progress_.show(metrics, begun.step == last || (stop_signal_ != 0 && begun.step == step_));
    if (nonfinite_.too_many()) refuse_to_go_on();
  }

  // On every rank at the same step: what it goes by is equal on all.
  [[noreturn]] void refuse_to_go_on() {
    throw Error("train",
                fmt::format("{} {}", nonfinite_.describe(),
                            nonfinite_.too_many() ? fmt::format("So many in a row end a run (--max-nonfinite {}).",
                                                                options_.nonfinite_steps)
                                                  : "The run ended so, and that is not saved."));
  }

  // Those of the steps asked for that this run takes; a run that resumes takes the later ones.
  void choose_traced(int64_t last) {
    if (options_.trace_steps.empty() || step_ >= last) return;
    StepSpan asked = read_step_span(options_.trace_steps);
    asked.first = std::max(asked.first, step_ + 1);
    asked.last = std::min(asked.last, last);
    if (asked.first > asked.last) {
      progress_.say(fmt::format("--trace-steps {}: this run takes steps {} to {}, so there is no trace",
                                options_.trace_steps, step_ + 1, last));
      return;
    }
    traced_ = asked;
    if (world_.rank() == 0) trace_.emplace(asked, options_.out + "/trace.json");
  }

  // Of a run that was stopped.
  void end_trace() {
    await_gpu();
    if (const std::string said = trace_->end_with(step_); !said.empty()) progress_.say(said);
  }

  // A step is read once it is decided, and what updates it may still be at work.
  void await_gpu() {
    if (engine_.device().is_cuda()) at::accelerator::synchronizeDevice(engine_.device().index());
  }

  void evaluate() {
    const auto begin = Clock::now();
    const int64_t micro_steps = std::min(options_.eval_batches, batches_.evaluation_steps());
    std::vector<double> losses;
    for (int64_t i = 0; i < micro_steps; ++i) {
      engine_.evaluate([&] { losses.push_back(loss_of(batches_.validation(i)).item<double>()); });
    }
    const int data_ranks = mesh_of(config_, world_.size()).data_ranks();
    EvalMetrics metrics;
    metrics.step = step_;
    metrics.loss = exchange_.share(losses, 0).mean_loss;
    metrics.tokens = micro_steps * config_.batch.micro_batch_size * data_ranks * run_.cut.sequence;
    metrics.eval_ms = milliseconds_since(begin);
    if (evaluations_ != nullptr) append(*evaluations_, to_line(metrics));
    progress_.say(fmt::format("step {}/{} | validation loss {:.4f} on {} tokens", step_, options_.steps, metrics.loss,
                              format_count(metrics.tokens)));
  }

  void append(MetricsFile& file, const std::string& line) {
    try {
      file.append(line);
    } catch (const Error& error) {
      if (options_.on_save_error == OnSaveError::stop) throw;
      progress_.say(fmt::format("{} Training goes on.", error.what()));
    }
  }

  void save() {
    if (last_saved_ == step_) return;
    // Nobody wants to go on from it, and it may push a good one out of --keep-last.
    if (nonfinite_.lost()) {
      progress_.say(fmt::format("step {} is not saved: its loss is not finite", step_));
      return;
    }
    SaveOptions saving;
    saving.folder = checkpoints_of(options_.out);
    saving.step = step_;
    saving.keep_last = options_.keep_last;
    put_position(position_, saving.extra);
    saving.extra["model"] = options_.model;
    saving.extra["model_config"] = run_.model->config_json();
    saving.extra["threads"] = std::to_string(threads_);
    const auto begin = Clock::now();
    try {
      const std::string path = save_checkpoint(engine_, world_, saving);
      progress_.say(fmt::format("saved      {} in {:.0f} ms", path, milliseconds_since(begin)));
      last_saved_ = step_;
      last_save_failed_ = false;
    } catch (const SaveError& error) {  // anything else, a dead rank say, ends the run
      if (options_.on_save_error == OnSaveError::stop) throw;
      progress_.say(fmt::format("{} The run goes on (--on-save-error continue).", error.what()));
      last_save_failed_ = true;
      last_saved_ = step_;  // tried; not again for the same step
    }
  }

  void say_what_it_took() {
    if (engine_.device().is_cuda() && step_ > 0) {
      const auto stats = at::accelerator::getDeviceStats(engine_.device().index());
      const auto peak = stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
      const size_t planned = fitted_.activations.device;
      for (const std::string& line : gpu_memory_lines(engine_.meters().memory(), static_cast<size_t>(peak), planned)) {
        progress_.say(line);
      }
    }
    if (step_ == first_step_) return;
    const auto ring = engine_.meters().memory().held.state_ring;
    for (const std::string& line : host_traffic_lines(engine_.meters().host(), step_ - first_step_, ring))
      progress_.say(line);
  }

  int finish(int64_t last) {
    say_what_it_took();
    // A signal that came in the last step changes nothing: all steps are taken.
    const bool interrupted = stop_signal_ != 0 && step_ < last;
    if (!options_.out.empty() && (interrupted ? options_.save_on_exit : options_.save_at_end)) save();
    if (interrupted) {
      progress_.say(fmt::format("stopped after step {} by signal {}", step_, stop_signal_));
      return kSignalExit + stop_signal_;
    }
    if (step_ > first_step_ && nonfinite_.lost()) refuse_to_go_on();
    return last_save_failed_ ? 1 : 0;
  }

  const TrainOptions& options_;
  const PreparedRun& run_;
  const FittedRun& fitted_;
  const Config& config_;  // of the fitted run
  Group& world_;
  int threads_ = 1;
  Batches batches_;
  Position position_;
  Progress progress_;
  StepExchange exchange_;
  NonfiniteSteps nonfinite_;
  Engine engine_;
  StopSignal signals_;
  size_t lag_;  // so many steps are begun before the first is read: a GPU has the next one to do while the host reads
  std::deque<BegunStep> begun_;
  Mark mark_;  // when the last step was read, or the first that is not was begun
  std::unique_ptr<MetricsFile> metrics_, evaluations_;  // rank 0 with a folder only
  std::optional<StepSpan> traced_;                      // steps that rank 0 traces
  std::optional<Trace> trace_;                          // of rank 0, where asked for
  int64_t step_ = 0;                                    // taken so far
  int64_t first_step_ = 0;                              // taken before this run
  int64_t last_saved_ = -1;
  bool last_save_failed_ = false;
  int stop_signal_ = 0;  // that all ranks have agreed to stop for
};

}  // namespace

int threads_for(const TrainOptions& options, int local_ranks) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return launch::threads_of_rank(options.threads, std::getenv("OMP_NUM_THREADS"), cores, local_ranks);
}

int train(const TrainOptions& options, const PreparedRun& run) {
  const at::Device device = open_device(options.device);
  const int threads = threads_for(options, local_ranks(run.world));
  at::set_num_threads(threads);
  if (device.is_cuda()) prefer_cudnn_attention();
  if (options.deterministic) make_deterministic(device);
  if (device.is_cuda()) allow_tf32(run.config.shoal.tf32);
  const std::unique_ptr<Group> world =
      run.world == 1 ? make_single_group() : make_process_group(process_group_options(run.config));
  try {
    check_agreement(facts_of(options, run), *world);
    std::unique_ptr<RunLock> lock;  // for as long as the run lives
    checkpoint::act_together(*world, {"lock", "run folder"}, "--out", [&] {
      if (!options.out.empty() && world->rank() == 0) lock = std::make_unique<RunLock>(options.out);
    });
    if (!options.data_checked) check_tokens_together(run, *world);
    const FittedRun fitted = fit_to_memory(run, *world, device);
    run.model->set_recomputed(fitted.recomputed);
    return Trainer(options, run, fitted, *world, device, threads).run();
  } catch (const std::exception& error) {
    world->abort(error.what());  // so that the other ranks say why
    throw;
  }
}

}  // namespace shoal::train
