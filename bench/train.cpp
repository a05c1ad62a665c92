// Trains the benchmark's Llama with Shoal, a few steps at a time, on request: one rank of the protocol in
// bench/README.md. Flags: --stage 0..3, --transport shm|gloo|auto|none, --layers N, --set KEY=VALUE of the config.
// Without a transport each rank is a world of one: what the same work costs when nobody talks, the floor for the
// others. Freed memory is kept, as by `shoal train`.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "llama.h"
#include "shoal/engine.h"
#include "shoal/error.h"
#include "shoal/heap.h"

namespace {

struct Flags {
  int stage = 3;
  std::string transport = "auto";
  int64_t layers = 8;
  std::vector<std::string> settings;
};

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = argv[i + 1];
    if (flag == "--stage")
      flags.stage = std::stoi(value);
    else if (flag == "--transport")
      flags.transport = value;
    else if (flag == "--layers")
      flags.layers = std::stoll(value);
    else if (flag == "--set")
      flags.settings.push_back(value);
    else
      throw shoal::Error("bench_train", flag + " is not a flag. Use --stage, --transport, --layers or --set.");
  }
  return flags;
}

std::string config_text(const Flags& flags) {
  return fmt::format(R"({{
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": 1.0,
    "zero_optimization": {{"stage": {}, "stage3_prefetch_bucket_size": 7000000, "stage3_param_persistence_threshold": 10000}},
    "optimizer": {{"type": "AdamW", "params": {{"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}}}},
    "shoal": {{"transport": "{}"}}
  }})",
                     flags.stage, flags.transport == "none" ? "auto" : flags.transport);
}

int serve(const Flags& flags) {
  at::set_num_threads(1);
  shoal::keep_freed_memory();
  const bool alone = flags.transport == "none";
  const shoal::Config config =
      shoal::Config::from_text(config_text(flags), {.world_size = alone ? 1 : shoal::world_size_of_environment()},
                               "bench_train", flags.settings);
  const std::unique_ptr<shoal::Group> world =
      alone ? shoal::make_single_group() : shoal::make_process_group(shoal::process_group_options(config));
  shoal::bench::LlamaShape shape;
  shape.layers = flags.layers;
  const shoal::bench::Llama model(shape);
  const at::Tensor batches = shoal::bench::make_batches(shape, world->rank());
  shoal::Engine engine(model.units(), config, *world);
  std::cout << "ready" << std::endl;

  int64_t step = 0;
  std::string verb;
  int count = 0;
  while (std::cin >> verb >> count) {
    world->barrier({"begin a round", "all units"}).wait();
    const auto begin = std::chrono::steady_clock::now();
    double loss_value = 0;
    for (int i = 0; i < count; ++i, ++step) {
      const at::Tensor batch = batches[step % shoal::bench::kBatchPool];
      const at::Tensor loss = model.loss(engine, batch.slice(1, 0, shape.time), batch.slice(1, 1, shape.time + 1));
      engine.backward(loss);
      engine.step();
      loss_value = loss.item<double>();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::cout << fmt::format("{} {:.6f} {:.6f}", count, seconds.count(), loss_value) << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return serve(parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
