// See faulty_run.h.
#include "training/faulty_run.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <signal.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>
#include <vector>

namespace shoal::testing {
namespace {

class FaultyTraining {
 public:
  FaultyTraining(Group& world, const FaultyRun& run)
      : world_(world), run_(run), faulty_(world.rank() == run.faulty_rank) {}

  RunResult train() {
    at::set_num_threads(1);
    Engine engine(units(), config(), world_, {.groups = {{}, {}}});
    RunResult result;
    for (step_ = 0; step_ < 2 * kFaultyStep; ++step_) {
      if (is(Fault::stops_early)) return result;
      if (is(Fault::evaluates_alone)) engine.evaluate([&] { forward(engine); });
      if (is(Fault::gathers_alone)) engine.with_gathered({"twice.w1"}, Access::read, [] {});
      const at::Tensor loss = forward(engine);
      result.losses.push_back(loss.item<double>());
      engine.backward(loss);
      result.norms.push_back(engine.step().grad_norm);
    }
    engine.with_gathered(MatrixModel::names(), Access::read, [&] {
      for (const at::Tensor& tensor : model_.tensors()) {
        result.weights.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
      }
    });
    return result;
  }

 private:
  // Whether this rank does the fault, and now.
  bool is(Fault fault) const { return faulty_ && run_.fault == fault && step_ == kFaultyStep; }
  bool has(Fault fault) const { return faulty_ && run_.fault == fault; }

  std::vector<Unit> units() const {
    std::vector<Unit> units = model_.units();
    if (has(Fault::another_model)) units[2].params.push_back({"drop.extra", at::zeros({3}).set_requires_grad(true)});
    if (has(Fault::no_model)) units[3].name = units[2].name;
    return units;
  }

  Config config() const {
    RunOptions options;
    options.stage = has(Fault::another_stage) ? run_.stage - 1 : run_.stage;
    options.shard_size = run_.shard_size;
    options.prefetch = run_.prefetch;
    options.overlap = run_.overlap;
    options.clip = !has(Fault::another_config);
    return config_of(options, world_.size());
  }

  std::vector<int> order() const {
    const bool swapped =
        is(Fault::another_order) || has(Fault::another_order_always) || (has(Fault::another_order_first) && step_ == 0);
    return swapped ? std::vector<int>{0, 1, 3, 2, 1, 4} : std::vector<int>{0, 1, 2, 3, 1, 4};
  }

  at::Tensor forward(Engine& engine) {
    visits_ = 0;
    const Batch batch = batch_of(step_, 0, world_.rank());
    at::Tensor x = batch.ids;
    for (const int unit : order()) {
      const auto part = [this, unit](const at::Tensor& t) {
        return unit == 2 ? fail_in(apply(unit, t)) : apply(unit, t);
      };
      x = run_.fault == Fault::killed_in_recompute && unit == 2
              ? engine.recompute(x, [&engine, part](const at::Tensor& t) { return engine.run(2, t, part); })
              : engine.run(unit, x, part);
    }
    return cross_entropy(x, batch.labels);
  }

  at::Tensor apply(int unit, const at::Tensor& x) const {
    at::Generator unused;
    switch (unit) {
      case 0: return at::embedding(model_.wte, x);
      case 1: return model_.twice(x);
      case 2: return model_.drop(x, 0, unused);
      case 3: return x + at::linear(x, model_.sometimes);
      default: return model_.head(x);
    }
  }

  // What happens inside the unit "drop".
  at::Tensor fail_in(at::Tensor output) {
    ++visits_;
    if (is(Fault::killed_in_forward)) die();
    if (is(Fault::killed_in_recompute) && visits_ == 2) let_reductions_pass(), die();
    if (is(Fault::killed_in_backward))
      output.register_hook([this](const at::Tensor&) { let_reductions_pass(), die(); });
    if (is(Fault::killed_in_collective)) {
      std::thread([this] {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        die();
      }).detach();
    }
    const int late_rank = run_.faulty_rank == 0 ? 1 : 0;
    if (run_.fault == Fault::killed_in_collective && step_ == kFaultyStep && world_.rank() == late_rank) {
      std::this_thread::sleep_for(std::chrono::milliseconds(3000));
    }
    if (is(Fault::throws_in_forward)) give_up();
    if (is(Fault::throws_in_backward))
      output.register_hook([this](const at::Tensor&) { let_reductions_pass(), give_up(); });
    if (is(Fault::hangs)) {
      run_.announce();
      std::this_thread::sleep_for(run_.pause);
    }
    return output;
  }

  // What was issued before the fault is done by then: the peers stop at a place that can be told beforehand.
  void let_reductions_pass() const { std::this_thread::sleep_for(run_.settle); }

  void die() const {
    run_.announce();
    ::kill(getpid(), SIGKILL);
    pause();
  }
  void give_up() const {
    run_.announce();
    throw std::runtime_error("the user's data ended");
  }

  Group& world_;
  FaultyRun run_;
  bool faulty_;
  MatrixModel model_;
  int step_ = 0;
  int visits_ = 0;  // of the unit "drop" in this step
};

}  // namespace

RunResult train_with_fault(Group& world, const FaultyRun& run) { return FaultyTraining(world, run).train(); }

std::string said_by(int rank, const std::string& place, const std::string& cause) {
  const std::string number = R"( \((weights|gradients) #[0-9]+\))";
  return R"(\[comm rank )" + std::to_string(rank) + R"(\] )" + place + number + ": (rank [0-9] stopped at [^:]+" +
         number + ": )?" + cause;
}

}  // namespace shoal::testing
