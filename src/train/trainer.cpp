// See trainer.h.
#include "train/trainer.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "base/text.h"
#include "checkpoint/exchange.h"
#include "checkpoint/load.h"
#include "engine/blueprint.h"
#include "engine/room.h"
#include "optim/nonfinite_steps.h"
#include "plan/from_config.h"
#include "shoal/checkpoint.h"
#include "shoal/device.h"
#include "shoal/error.h"
#include "train/agreement.h"
#include "train/audit.h"
#include "train/banner.h"
#include "train/device_copies.h"
#include "train/expert_load.h"
#include "train/fitted_run.h"
#include "train/metrics_file.h"
#include "train/model_flops.h"
#include "train/monitor_logs.h"
#include "train/param_groups.h"
#include "train/progress.h"
#include "train/run_events.h"
#include "train/run_facts.h"
#include "train/run_lines.h"
#include "train/run_lock.h"
#include "train/run_saves.h"
#include "train/run_trace.h"
#include "train/same_bits.h"
#include "train/saved_model.h"
#include "train/slow_rank.h"
#include "train/state_digests.h"
#include "train/step_exchange.h"
#include "train/step_meter.h"
#include "train/stop_wish.h"
#include "train/trace.h"

namespace shoal::train {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
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
        batches_(*run.data.samples, run.data.describe(), run.cut.sequence,
                 batch_place(config_, world.rank(), world.size())),
        position_(run.start),
        progress_({.out = stdout,
                   .columns = columns_of_terminal(),
                   .quiet = world.rank() != 0,
                   .steps = options.steps,
                   .last = options.stop_at > 0 ? std::min(options.stop_at, options.steps) : options.steps,
                   .log_every = options.log_every,
                   .tokens_per_epoch = batches_.train_samples() * run.cut.sequence,
                   .mfu_per_token = mfu_per_token(flops_of(options, run, device), world.size())}),
        exchange_(world, mesh_of(config_, world.size())),
        nonfinite_(config_, options.nonfinite_steps.value_or(config_.shoal.max_nonfinite), /*losses_agree=*/true),
        // Every parameter has a source of its first values, equal on every rank.
        grouped_(group_params(run.model->units(), options, config_)),
        engine_(grouped_.units, config_, world,
                {.device = device,
                 .groups = grouped_.groups,
                 .seed = options.seed,
                 .broadcast_weights = false,
                 .watch_nonfinite = false}),
        stop_wish_(options),
        lag_(static_cast<size_t>(options.read_behind.value_or(device.is_cuda() ? 1 : 0))) {}

  // To the run's events, on the way out of run().
  void note_failure(const std::exception& error) {
    happened_.flush_ranks();
    happened_.add("failed", step_, {{"why", first_line(error.what())}});
  }

  int run() {
    print_banner();
    if (options_.out.empty()) progress_.say("no --out: nothing is saved");
    resume();
    open_files();
    const int64_t last = options_.stop_at > 0 ? std::min(options_.stop_at, options_.steps) : options_.steps;
    if (step_ >= last) progress_.say(fmt::format("step {} is reached already: nothing to do", last));
    trace_.emplace(options_, world_.rank(), world_.size(), step_ + 1, last);
    if (!trace_->missing().empty()) progress_.say(trace_->missing());
    while (step_ < last && stop_reason_ == 0) {
      trace_->begin_step(step_ + 1);
      auto range = std::make_unique<TraceRange>(fmt::format("step {}", step_ + 1));
      if (options_.audit_every > 0 && (step_ + 1) % options_.audit_every == 0) audit();
      begin_step();
      const bool evaluates = options_.eval_every > 0 && step_ % options_.eval_every == 0;
      const bool saves = options_.save_every > 0 && step_ % options_.save_every == 0;
      const bool ends_trace = trace_->ends_with(step_);
      finish_steps(evaluates || saves || ends_trace || is_digested(step_) || step_ == last ? 0 : lag_, last);
      if (trace_->writes() && ends_trace) await_gpu();
      range.reset();
      say_trace(trace_->end_step(step_));
      if (evaluates) evaluate();
      if (saves) {
        save(/*at_end=*/false);
        // Who was told to stop meanwhile is not to take another step and save again.
        if (stop_reason_ == 0) stop_reason_ = exchange_.share_stop(stop_wish_.reason());
      }
    }
    finish_steps(0, last);
    if (trace_->writes()) await_gpu();
    say_trace(trace_->end_with(step_));  // of a run that was stopped
    return finish(last);
  }

 private:
  // A step whose result is not read yet.
  struct BegunStep {
    int64_t step = 0;
    int64_t samples = 0;             // with it
    std::vector<at::Tensor> losses;  // of this rank's micro-steps, in host memory
    StepExperts experts;
    PendingStep pending;
  };

  void print_banner() {
    if (world_.rank() != 0) return;
    for (const std::string& choice : fitted_.choices) progress_.say(choice);
    const models::ModelInfo& info = run_.model->info();
    BannerFacts facts;
    facts.model = model_text(info);
    facts.weights = weights_text(info, options_.seed, run_.checkpoint);
    facts.data = fmt::format("{}: {} tokens, {} samples of {} to train on, {} for validation", run_.data.describe(),
                             format_count(run_.data.numel()), format_count(batches_.train_samples()), run_.cut.sequence,
                             format_count(batches_.validation_samples()));
    facts.config = config_;
    facts.layout = layout_of(run_.model->units(), config_, world_.size());
    facts.transport = engine_.meters().transport();
    facts.threads = threads_;
    facts.on_gpu = engine_.device().is_cuda();
    facts.same_bits = same_bits_text(config_, {.worlds = run_.same_leaves,
                                               .on_gpu = facts.on_gpu,
                                               .freezes = info.lora.has_value(),
                                               .deterministic = options_.deterministic,
                                               .threads_follow_ranks = options_.threads == 0,
                                               .threads = threads_});
    facts.recompute = models::describe(fitted_.recomputed, info.layers);
    facts.host_activations = fitted_.activations.host;
    facts.saves_behind = saves_behind(options_);
    facts.products = prepare_products(engine_.device(), dtype_of(config_.precision));
    std::string text = banner(facts);
    text.pop_back();  // say() ends the line
    progress_.say(text);
  }

  void resume() {
    base_ = find_base(options_, run_, world_);
    if (run_.checkpoint.empty()) return;
    const LoadedCheckpoint loaded = load_checkpoint(engine_, world_, run_.checkpoint);
    position_.samples = resumed_samples(loaded.extra, run_.start);
    step_ = first_step_ = loaded.step;
    const bool own = options_.resume == "auto" || (options_.restarted_from && options_.resume.empty());
    if (own) saves_.found(step_);
    const ResumeFacts facts = {.ranks = world_.size(),
                               .threads = threads_,
                               .optimizer = checkpoint::optimizer_in(config_.to_json()),
                               .batch = config_.batch.train_batch_size,
                               .samples = position_.samples};
    for (const std::string& line : resume_lines(loaded, facts)) progress_.say(line);
  }

  void open_files() {
    if (world_.rank() != 0) return;
    const bool goes_on = step_ > 0 || options_.restarted_from;  // what stands in logs for later steps is dropped
    monitors_ = std::make_unique<MonitorLogs>(
        log_folders(options_, config_), goes_on ? std::optional(position_.samples) : std::nullopt,
        config_.precision == Precision::fp16, [this](const std::string& line) { progress_.say(line); });
    if (options_.out.empty()) return;
    const fs::path folder = options_.out;
    const RunRanks ranks = {threads_, world_.size(), engine_.meters().transport()};
    const ModelFlops flops = flops_of(options_, run_, engine_.device());
    write_run_facts(folder, options_, run_.cut, config_, ranks, flops, batches_.train_samples());
    happened_ = RunEvents(options_.out, step_);
    happened_.add(step_ == 0 && run_.checkpoint.empty() ? "start" : "resume", step_,
                  start_members(config_, ranks, run_.checkpoint));
    metrics_ = std::make_unique<MetricsFile>((folder / "metrics.jsonl").string(), step_);
    evaluations_ = std::make_unique<MetricsFile>((folder / "eval.jsonl").string(), step_);
    const fs::path digests = folder / "digests.jsonl";
    if (options_.digest_every > 0 || fs::exists(digests)) {
      digest_lines_ = std::make_unique<MetricsFile>(digests.string(), step_);
    }
  }

  // What a micro-batch adds to the loss of its step, times the number of micro-batches.
  at::Tensor loss_of(const Batch& batch, models::ForwardReport* report = nullptr) {
    const TraceRange range("forward");
    const at::Tensor tokens = tokens_on(engine_.device(), batch.tokens, run_.cut.sequence);
    const at::Tensor targets = tokens_on(engine_.device(), batch.targets, run_.cut.sequence);
    if (batch.documents.empty()) return run_.model->loss(engine_, tokens, targets, nullptr, report);
    auto documents = models::make_documents(batch.documents, run_.cut.sequence, engine_.device());
    return run_.model->loss(engine_, tokens, targets, std::move(documents), report).mul(batch.weight);
  }

  void begin_step() {
    if (begun_.empty()) meter_.start();
    std::optional<PendingStep> pending;
    std::vector<at::Tensor> losses;
    StepExperts experts;
    for (int64_t micro_step = 0; micro_step < config_.batch.accumulation_steps; ++micro_step) {
      models::ForwardReport report;
      const at::Tensor loss = loss_of(next_batch(micro_step), &report);
      see_ends();
      {
        const TraceRange range("backward");
        engine_.backward(loss);
      }
      see_ends();
      // There when the step's result is: before it on the GPU's stream.
      losses.push_back(to_host(loss));
      experts.add(report);
      const TraceRange range("update");
      pending = engine_.step_later();
    }
    position_.samples += config_.batch.train_batch_size;
    ++step_;
    begun_.push_back({step_, position_.samples, std::move(losses), std::move(experts), *pending});
    if (lag_ > 0) see_ends();
  }

  Batch next_batch(int64_t micro_step) {
    const TraceRange range("data");
    const auto begin = Clock::now();
    Batch batch = batches_.train(position_.samples, micro_step);
    meter_.add_data(milliseconds_since(begin) * 1e-3);
    return batch;
  }

  // Of steps whose results are read later.
  void see_ends() {
    while (meter_.seen() < begun_.size() && meter_.see(begun_[meter_.seen()].pending)) {
    }
  }

  // Reads and tells what became of steps, until `left` are on their way.
  void finish_steps(size_t left, int64_t last) {
    for (; begun_.size() > left; begun_.pop_front()) finish_step(begun_.front(), last);
  }

  void finish_step(const BegunStep& begun, int64_t last) {
    const StepResult& result = begun.pending.result();
    std::vector<double> losses;
    for (const at::Tensor& loss : begun.losses) losses.push_back(loss.item<double>());
    const TraceRange range("share losses");
    const int64_t leaves = config_.batch.train_batch_size / config_.batch.micro_batch_size;
    const StepNews news = exchange_.share(losses, leaves, {stop_wish_.reason(), saves_.is_ready(), meter_.totals()});
    meter_.add_shared(news.waited_seconds);
    if (stop_reason_ == 0) stop_reason_ = news.stop_reason;
    StepMetrics metrics;
    metrics.step = begun.step;
    metrics.loss = news.mean_loss;
    begun.experts.share(exchange_, leaves, metrics);
    metrics.grad_norm = result.grad_norm;
    metrics.lr = result.lrs.at(0);
    metrics.loss_scale = result.loss_scale;
    metrics.skipped = !result.applied;
    metrics.tokens = begun.samples * run_.cut.sequence;
    meter_.take(config_.batch.train_batch_size * run_.cut.sequence, metrics);
    saves_.see(news.save_ready);
    metrics.save_ms = saves_.take_held_up_ms();
    slow_rank_.see(news.ranks, metrics.step_ms * 1e-3);
    metrics.slow_rank = slow_rank_.now();
    happened_.add_ranks(begun.step, news.ranks);
    if (is_digested(begun.step)) metrics.digest = digest(begun.step);
    if (metrics_ != nullptr) append(*metrics_, to_line(metrics));
    if (monitors_ != nullptr) monitors_->write(begun.samples, metrics);
    nonfinite_.see(outcome_of(begun.step, result, metrics.loss));
    progress_.show(metrics, begun.step == last || (stop_reason_ != 0 && begun.step == step_));
    if (nonfinite_.too_many()) refuse_to_go_on();
  }

  // Of the step that comes.
  void audit() {
    const auto begin = Clock::now();
    const auto loss = [this](int64_t leaf) { return loss_of(batches_.train_leaf(position_.samples, leaf)); };
    const std::string found = Audit(engine_, run_.model->units(), world_, mesh_of(config_, world_.size())).find(loss);
    happened_.add("audit", step_ + 1, {{"ms", milliseconds_since(begin)}, {"found", found}});
    if (!found.empty()) throw AuditError(step_ + 1, found);
  }

  bool is_digested(int64_t step) const { return options_.digest_every > 0 && step % options_.digest_every == 0; }

  // Of the state after the last step that was begun, which is this one: it was not read behind another.
  std::string digest(int64_t step) {
    SHOAL_CHECK_EQ(step, step_);
    const StateDigests found = digest_states(engine_, world_);
    if (digest_lines_ != nullptr) append(*digest_lines_, to_line(step, found));
    return digest_text(found.all());
  }

  // On every rank at the same step: what it goes by is equal on all.
  [[noreturn]] void refuse_to_go_on() {
    try {
      saves_.wait();
    } catch (const SaveError& error) {
      progress_.say(error.what());
    }
    throw Error("train", why_it_ends(nonfinite_));
  }

  void say_trace(const std::string& said) {
    if (said.empty()) return;
    progress_.say(said);
    happened_.add("trace", step_, {{"first", trace_->first()}, {"ranks", options_.trace_ranks}, {"said", said}});
  }

  // A step is read once it is decided, and what updates it may still be at work.
  void await_gpu() {
    if (engine_.device().is_cuda()) at::accelerator::synchronizeDevice(engine_.device().index());
  }

  void evaluate() {
    const auto begin = Clock::now();
    const int64_t leaves = std::min(options_.eval_batches, batches_.validation_leaves());
    const BatchPlace place = batch_place(config_, world_.rank(), world_.size());
    std::vector<double> losses;
    for (int64_t first = 0; first < leaves; first += place.data_ranks) {
      // A rank that the last round has no leaf for takes another one along, with weight 0: units are gathered by all.
      const int64_t leaf = (first + place.data_rank) % leaves;
      engine_.evaluate([&] { losses.push_back(loss_of(batches_.validation(leaf, leaves)).item<double>()); });
    }
    EvalMetrics metrics;
    metrics.step = step_;
    metrics.loss = exchange_.share(losses, leaves).mean_loss;
    metrics.tokens = batches_.validation_tokens(leaves);
    metrics.eval_ms = milliseconds_since(begin);
    if (evaluations_ != nullptr) append(*evaluations_, to_line(metrics));
    if (monitors_ != nullptr) monitors_->write(position_.samples, metrics);
    happened_.add("evaluation", step_, {{"ms", metrics.eval_ms}});
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

  void save(bool at_end) {
    if (saves_.has(step_)) return;
    // Nobody wants to go on from it, and it may push a good one out of --keep-last.
    if (nonfinite_.lost() || nonfinite_.nothing_else()) {
      progress_.say(fmt::format("step {} is not saved: {}", step_,
                                nonfinite_.lost() ? "its loss is not finite" : "no step was taken"));
      return;
    }
    SaveOptions saving = saving_of(options_, *run_.model, base_);
    saving.step = step_;
    put_position(position_, saving.extra);
    saving.extra["threads"] = std::to_string(threads_);
    if (at_end) {
      saves_.save(saving);
    } else {
      saves_.begin(saving);
    }
  }

  void say_what_it_took() {
    EventFacts memory = memory_members(engine_.meters().memory());
    memory.emplace_back("planned_activations", static_cast<int64_t>(fitted_.activations.device));
    if (const size_t peak = peak_nbytes(engine_.device()); peak > 0 && step_ > 0) {
      memory.emplace_back("peak_beside", static_cast<int64_t>(peak));
      for (const std::string& line : gpu_memory_lines(engine_.meters().memory(), peak, fitted_.activations.device)) {
        progress_.say(line);
      }
    }
    if (step_ == first_step_) return;
    happened_.add("memory", step_, memory);
    const auto ring = engine_.meters().memory().held.state_ring;
    for (const std::string& line : host_traffic_lines(engine_.meters().host(), step_ - first_step_, ring))
      progress_.say(line);
  }

  int finish(int64_t last) {
    saves_.wait();
    happened_.flush_ranks();
    say_what_it_took();
    // A wish to stop that came in the last step changes nothing: all steps are taken.
    const bool stops = stop_reason_ != 0 && step_ < last;
    if (stops ? saves_before(stop_reason_, options_) : !options_.out.empty() && options_.save_at_end) {
      save(/*at_end=*/true);
    }
    if (stops) {
      progress_.say(stop_text(stop_reason_, step_));
      happened_.add("stopped", step_, stop_facts(stop_reason_));
      return saves_.last_failed() ? 1 : exit_code_of(stop_reason_);
    }
    if (step_ > first_step_ && (nonfinite_.lost() || nonfinite_.nothing_else())) refuse_to_go_on();
    happened_.add("end", step_);
    return saves_.last_failed() ? 1 : 0;
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
  SlowRank slow_rank_;
  GroupedUnits grouped_;
  Engine engine_;
  StopWish stop_wish_;
  size_t lag_;  // so many steps are begun before the first is read: a GPU has the next one to do while the host reads
  std::deque<BegunStep> begun_;
  StepMeter meter_{engine_};
  RunEvents happened_;
  RunSaves saves_{options_, engine_, world_, progress_, happened_};
  std::optional<models::LoraBase> base_;                               // with --lora
  std::unique_ptr<MetricsFile> metrics_, evaluations_, digest_lines_;  // rank 0 with a folder only
  std::unique_ptr<MonitorLogs> monitors_;                              // rank 0 only
  std::optional<RunTrace> trace_;                                      // from the first step on
  int64_t step_ = 0;                                                   // taken so far
  int64_t first_step_ = 0;                                             // taken before this run
  int stop_reason_ = 0;                                                // that all ranks have agreed on; 0: none
};

}  // namespace

int train(const TrainOptions& options, const PreparedRun& run) {
  const at::Device device = open_device(options.device);
  const int threads = threads_for(options, local_ranks(run.world));
  at::set_num_threads(threads);
  if (device.is_cuda()) prefer_cudnn_attention();
  if (options.deterministic) make_deterministic(device);
  if (options.audit_every > 0) check_auditable(run.config, device, options.deterministic);
  if (device.is_cuda()) allow_tf32(run.config.shoal.tf32);
  const std::unique_ptr<Group> world =
      run.world == 1 ? make_single_group() : make_process_group(process_group_options(run.config));
  // Outside, since their ends wait for disks: the other ranks are told of a failure before.
  std::unique_ptr<RunLock> lock;  // for as long as the run lives
  std::optional<FittedRun> fitted;
  std::optional<Trainer> trainer;
  try {
    check_agreement(facts_of(options, run), *world);
    checkpoint::act_together(*world, {"lock", "run folder"}, "--out", [&] {
      if (!options.out.empty() && world->rank() == 0) lock = std::make_unique<RunLock>(options.out);
    });
    if (!options.data_checked) check_tokens_together(run, *world);
    fitted = fit_to_memory(run, *world, device);
    run.model->set_recomputed(fitted->recomputed);
    return trainer.emplace(options, run, *fitted, *world, device, threads).run();
  } catch (const AuditError& error) {  // of every rank: none is to hear of it from another
    trainer->note_failure(error);
    throw;
  } catch (const std::exception& error) {
    world->abort(error.what());  // so that the other ranks say why
    if (trainer) trainer->note_failure(error);
    throw;
  }
}

}  // namespace shoal::train
