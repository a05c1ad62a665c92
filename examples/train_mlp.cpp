// Trains a small network with ZeRO-3 on two ranks, played by threads of this program. With real processes only main()
// changes: make_process_group() instead of make_thread_groups().
//   build:  make build        run:  build/dev/examples/example_train_mlp
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <thread>

#include "shoal/engine.h"

namespace {

constexpr int kRanks = 2;
constexpr int kSteps = 300;
constexpr int64_t kWidth = 256;

const char* const kConfig = R"({
  "train_micro_batch_size_per_gpu": 64,
  "gradient_clipping": 1.0,
  "bf16": {"enabled": false},
  "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 70000, "stage3_param_persistence_threshold": 1000},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 300, "warmup_num_steps": 20}}
})";

struct Layer {
  at::Tensor weight, bias;
};

// An ordinary libtorch model: tensors that require gradients.
std::vector<Layer> make_model(at::Generator& random) {
  std::vector<Layer> layers;
  for (const auto& [in, out] :
       std::vector<std::pair<int64_t, int64_t>>{{8, kWidth}, {kWidth, kWidth}, {kWidth, kWidth}, {kWidth, 1}}) {
    layers.push_back({(at::empty({out, in}).normal_(0, 1, random) / std::sqrt(in)).set_requires_grad(true),
                      at::zeros({out}).set_requires_grad(true)});
  }
  return layers;
}

// The function to learn: how far a point lies from the unit sphere, with some waves on it.
at::Tensor target_of(const at::Tensor& x) {
  return (x.norm(2, 1, true) - 1).abs() + 0.3 * (3 * x.slice(1, 0, 1)).sin();
}

void play_rank(shoal::Group& world) {
  at::set_num_threads(1);
  at::Generator weights = at::detail::createCPUGenerator(1);
  at::Generator data = at::detail::createCPUGenerator(static_cast<uint64_t>(100 + world.rank()));
  const std::vector<Layer> layers = make_model(weights);

  // 1. The parameters in units, in the order of their use.
  std::vector<shoal::Unit> units;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string name = "layer" + std::to_string(i);
    units.push_back({name, {{name + ".weight", layers[i].weight}, {name + ".bias", layers[i].bias}}});
  }

  // 2. An engine from DeepSpeed's JSON.
  const shoal::Config config = shoal::Config::from_text(kConfig, {.world_size = world.size()});
  shoal::Engine engine(units, config, world);
  if (world.rank() == 0) {
    fmt::print("memory of one rank at stage {}:\n{}", config.zero.stage, to_text(engine.meters().memory().planned));
  }

  // 3. The loop: run() around each unit, backward, step.
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor input = at::empty({config.batch.micro_batch_size, 8}).normal_(0, 1, data);
    at::Tensor x = input;
    for (size_t i = 0; i < layers.size(); ++i) {
      x = engine.run(static_cast<int>(i), x, [&](const at::Tensor& t) {
        const at::Tensor y = at::linear(t, layers[i].weight, layers[i].bias);
        return i + 1 < layers.size() ? at::gelu(y) : y;
      });
    }
    const at::Tensor loss = at::mse_loss(x, target_of(input));
    engine.backward(loss);
    const shoal::StepResult result = engine.step();
    if (world.rank() == 0 && (step % 50 == 0 || step + 1 == kSteps)) {
      fmt::print("step {:>3} | loss {:.4f} | norm {:.3f} | lr {:.2e}\n", step, loss.item<double>(), result.grad_norm,
                 result.lrs[0]);
    }
  }

  // 4. Parameters are sharded; gather what you want to look at.
  engine.with_gathered({"layer3.bias"}, shoal::Access::read, [&] {
    if (world.rank() == 0) fmt::print("layer3.bias is {:.4f}\n", layers[3].bias.item<double>());
  });
}

}  // namespace

int main() {
  std::vector<std::unique_ptr<shoal::Group>> ranks = shoal::make_thread_groups(kRanks);
  std::vector<std::thread> threads;
  for (auto& rank : ranks) threads.emplace_back([&rank] { play_rank(*rank); });
  for (std::thread& thread : threads) thread.join();
}
