// The models' fused operations on one GPU: bytes a second against the device's copy of 1 GiB and against a copy that
// moves as many bytes as the operation, and time against the eager operations they replace, at the shapes of llama-1b
// and llama-8b (16,384 tokens, bf16). Takes less than a minute.
//
//   bench_cuda_model_ops
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <cuda_runtime.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "models/dense/rope.h"
#include "models/ops/activation.h"
#include "models/ops/cuda/cross_entropy.h"
#include "models/ops/fp8.h"
#include "models/ops/launch.h"
#include "models/ops/linear.h"
#include "models/ops/linear_cross_entropy.h"
#include "models/ops/norm.h"
#include "models/ops/rotary.h"
#include "models/ops/swiglu_linear.h"
#include "shoal/device.h"

namespace {

namespace ops = shoal::models::ops;
using at::Tensor;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

constexpr int64_t kBatch = 8, kTime = 2048, kTokens = kBatch * kTime;
constexpr double kEps = 1e-5;

double copy_rate = 0;  // bytes a second, read and written
Tensor copy_from, copy_to;

// Median microseconds of the device.
double time_of(const std::function<void()>& run, int repeats = 20) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  auto* stream = static_cast<cudaStream_t>(ops::stream_of(at::empty({1}, at::kCUDA)));
  for (int i = 0; i < 3; ++i) run();
  std::vector<float> times;
  for (int i = 0; i < repeats; ++i) {
    // Work ahead of the first event keeps the device busy while the host queues what is measured: half a millisecond,
    // which is enough for autograd too. It fills the cache with lines that are still to be written, as any step does.
    static const Tensor filler = at::empty({int64_t{2} << 30}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
    filler.zero_();
    cudaEventRecord(begin, stream);
    run();
    cudaEventRecord(end, stream);
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    times.push_back(ms * 1000);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

Tensor normal(at::IntArrayRef sizes) { return at::randn(sizes, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16)); }

// Microseconds of a copy that reads and writes `nbytes` together.
double time_of_copy(double nbytes) {
  const auto half = static_cast<int64_t>(nbytes / 2);
  const Tensor from = copy_from.narrow(0, 0, half), to = copy_to.narrow(0, 0, half);
  return time_of([&] { to.copy_(from); });
}

void print_line(const std::string& name, double nbytes, double fused, double eager) {
  const double rate = nbytes / fused * 1e6;
  std::printf("%-44s %10.1f %9.0f %7.1f%% %9.1f%% %10.1f %8.2fx\n", name.c_str(), fused, rate / 1e9,
              100 * rate / copy_rate, 100 * time_of_copy(nbytes) / fused, eager, eager / fused);
}
void print_time(const std::string& name, double fused, double eager) {
  std::printf("%-44s %10.1f %9s %8s %10s %10.1f %8.2fx\n", name.c_str(), fused, "", "", "", eager, eager / fused);
}

struct Case {
  std::string name;
  Tensors inputs;
  Function fused, eager;
  double forward_nbytes = 0, backward_nbytes = 0;
};

double forward_time(const Case& c, const Function& function, int repeats = 20) {
  at::NoGradGuard no_grad;
  return time_of([&] { function(c.inputs); }, repeats);
}

double backward_time(const Case& c, const Function& function, int repeats = 20) {
  Tensors leaves;
  for (const Tensor& input : c.inputs) {
    leaves.push_back(input.detach());
    leaves.back().set_requires_grad(true);
  }
  const Tensors outputs = function(leaves);
  Tensors grads;
  for (const Tensor& output : outputs) grads.push_back(at::ones_like(output, at::MemoryFormat::Contiguous));
  return time_of([&] { torch::autograd::grad(outputs, leaves, grads, /*retain_graph=*/true); }, repeats);
}

void measure(const Case& c) {
  print_line(c.name + " forward", c.forward_nbytes, forward_time(c, c.fused), forward_time(c, c.eager));
  print_line(c.name + " backward", c.backward_nbytes, backward_time(c, c.fused), backward_time(c, c.eager));
}

struct Model {
  std::string name;
  int64_t hidden, ffn, heads, kv_heads, dim;
  std::vector<int64_t> vocabs;
};

void measure_norms(const Model& m) {
  const double x = 2.0 * kTokens * m.hidden;  // bytes of one tensor
  const Tensors inputs = {normal({kTokens, m.hidden}), normal({kTokens, m.hidden}), normal({m.hidden}),
                          normal({m.hidden})};
  const int64_t hidden = m.hidden;
  measure({"rms_norm",
           {inputs[0], inputs[2]},
           [](const Tensors& t) -> Tensors { return {ops::rms_norm(t[0], t[1], kEps)}; },
           [=](const Tensors& t) -> Tensors { return {at::rms_norm(t[0], {hidden}, t[1], kEps)}; },
           2 * x,
           3 * x});
  measure({"add_rms_norm",
           {inputs[0], inputs[1], inputs[2]},
           [](const Tensors& t) -> Tensors {
             const ops::AddedNorm both = ops::add_rms_norm(t[0], t[1], t[2], kEps);
             return {both.sum, both.norm};
           },
           [=](const Tensors& t) -> Tensors {
             const Tensor sum = t[0].add(t[1]);
             return {sum, at::rms_norm(sum, {hidden}, t[2], kEps)};
           },
           4 * x,
           4 * x});
  measure({"layer_norm",
           {inputs[0], inputs[2], inputs[3]},
           [](const Tensors& t) -> Tensors { return {ops::layer_norm(t[0], t[1], t[2], kEps)}; },
           [=](const Tensors& t) -> Tensors { return {at::layer_norm(t[0], {hidden}, t[1], t[2], kEps)}; },
           2 * x,
           3 * x});
}

void measure_rope(const Model& m) {
  const ops::RotaryTable made =
      shoal::models::make_rope_table(shoal::models::rope_frequencies({}, m.dim), kTime, at::kFloat);
  const ops::RotaryTable table = {made.cos.to(at::kCUDA), made.sin.to(at::kCUDA)};
  const Tensor cos = table.cos.to(at::kBFloat16), sin = table.sin.to(at::kBFloat16);
  const auto one = [=](const Tensor& given) {
    const Tensor x = given.transpose(1, 2);
    const int64_t half = x.size(-1) / 2;
    const Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
    return at::cat({a.mul(cos).sub(b.mul(sin)), b.mul(cos).add(a.mul(sin))}, -1);
  };
  const double nbytes = 2.0 * 2 * kTokens * (m.heads + m.kv_heads) * m.dim;
  measure({"rope",
           {normal({kBatch, kTime, m.heads, m.dim}), normal({kBatch, kTime, m.kv_heads, m.dim})},
           [=](const Tensors& t) -> Tensors {
             const ops::Rotated turned = ops::rotate(t[0], t[1], table);
             return {turned.q.transpose(1, 2), turned.k.transpose(1, 2)};
           },
           [=](const Tensors& t) -> Tensors {
             return {one(t[0]).transpose(1, 2), one(t[1]).transpose(1, 2)};
           },
           nbytes,
           nbytes});
}

void measure_activations(const Model& m) {
  const double x = 2.0 * kTokens * m.ffn;
  const Tensors inputs = {normal({kTokens, m.ffn}), normal({kTokens, m.ffn})};
  measure({"swiglu", inputs, [](const Tensors& t) -> Tensors { return {ops::swiglu(t[0], t[1])}; },
           [](const Tensors& t) -> Tensors { return {at::silu(t[0]).mul(t[1])}; }, 3 * x, 5 * x});
  for (const bool exact : {false, true}) {
    measure({exact ? "gelu exact" : "gelu tanh",
             {inputs[0]},
             [=](const Tensors& t) -> Tensors { return {ops::gelu(t[0], exact)}; },
             [=](const Tensors& t) -> Tensors { return {at::gelu(t[0], exact ? "none" : "tanh")}; },
             2 * x,
             3 * x});
  }
  const Case down = {
      "swiglu_linear",
      {inputs[0], inputs[1], normal({m.hidden, m.ffn}).mul(0.02)},
      [](const Tensors& t) -> Tensors { return {ops::swiglu_linear(ops::Matmul::plain, t[0], t[1], t[2])}; },
      [](const Tensors& t) -> Tensors { return {at::linear(at::silu(t[0]).mul(t[1]), t[2])}; }};
  print_time("swiglu_linear forward", forward_time(down, down.fused, 10), forward_time(down, down.eager, 10));
  print_time("swiglu_linear backward", backward_time(down, down.fused, 10), backward_time(down, down.eager, 10));
}

// The kernel alone on a chunk's logits, and head with loss, forward and backward.
void measure_cross_entropy(const Model& m, int64_t vocab) {
  const std::string words = " (vocab " + std::to_string(vocab) + ")";
  {
    const int64_t rows = ops::tokens_a_chunk(kTokens, vocab, m.hidden, shoal::DType::bf16);
    const Tensor logits = normal({rows, vocab}), losses = at::empty({rows}, at::TensorOptions(at::kCUDA));
    const Tensor targets = at::randint(0, vocab, {rows}, at::TensorOptions(at::kCUDA).dtype(at::kLong));
    ops::cuda::CrossEntropy args;
    args.logits = logits.mutable_data_ptr();
    args.targets = targets.const_data_ptr<int64_t>();
    args.losses = losses.mutable_data_ptr<float>();
    args.rows = rows;
    args.vocab = args.stride = vocab;
    args.dtype = shoal::DType::bf16;
    const double fused = time_of([&] { ops::cuda::cross_entropy(args, ops::stream_of(logits)); });
    const double eager = time_of([&] {
      const Tensor log_softmax = at::log_softmax(logits.to(at::kFloat), -1);
      const Tensor gradient = log_softmax.exp();
    });
    print_line("cross_entropy rows" + words, 4.0 * static_cast<double>(rows * vocab), fused, eager);
  }
  const Tensor targets = at::randint(0, vocab, {kTokens}, at::TensorOptions(at::kCUDA).dtype(at::kLong));
  Tensor x = normal({kTokens, m.hidden}), weight = normal({vocab, m.hidden}).mul(0.02);
  x.set_requires_grad(true);
  weight.set_requires_grad(true);
  const auto step = [&](const std::function<Tensor()>& loss) {
    return [&, loss] { torch::autograd::grad({loss()}, {x, weight}); };
  };
  const double fused = time_of(step([&] { return ops::linear_cross_entropy(x, weight, targets); }), 5);
  const double eager =
      time_of(step([&] { return at::cross_entropy_loss(at::linear(x, weight).to(at::kFloat), targets); }), 5);
  print_time("head and loss, both ways" + words, fused, eager);
}

void measure_fp8(const Model& m) {
  const Tensor x = normal({kTokens, m.hidden});
  for (const ops::Matmul how : {ops::Matmul::fp8_tensorwise, ops::Matmul::fp8_rowwise}) {
    const std::string words = how == ops::Matmul::fp8_rowwise ? " rowwise" : " tensorwise";
    // Read for the largest magnitude, read again, written in both layouts.
    const double rounding = time_of([&] { ops::to_fp8(x, ops::cuda::Fp8::e4m3, how, ops::Sides::both); });
    const bool rowwise = how == ops::Matmul::fp8_rowwise;
    const auto eagerly = [&] {
      const auto cast = [&](const Tensor& scale) { return x.div(scale).clamp(-448, 448).to(at::kFloat8_e4m3fn); };
      if (!rowwise) {
        const Tensor straight = cast(x.abs().amax().div(448));
        const Tensor transposed = straight.t().contiguous();
      } else {
        const Tensor magnitude = x.abs();
        const Tensor straight = cast(magnitude.amax(1, true).div(448));
        const Tensor transposed = cast(magnitude.amax(0, true).div(448)).t().contiguous();
      }
    };
    print_line("to fp8, both layouts" + words, 6.0 * kTokens * m.hidden, rounding, time_of(eagerly));
    const Case c = {"fp8 linear",
                    {x, normal({m.ffn, m.hidden}).mul(0.02)},
                    [=](const Tensors& t) -> Tensors { return {ops::linear(how, t[0], t[1])}; },
                    [](const Tensors& t) -> Tensors { return {at::linear(t[0], t[1])}; }};
    print_time("hidden to ffn forward, fp8" + words, forward_time(c, c.fused, 10), forward_time(c, c.eager, 10));
    print_time("hidden to ffn backward, fp8" + words, backward_time(c, c.fused, 10), backward_time(c, c.eager, 10));
  }
}

}  // namespace

int main() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    std::fprintf(stderr, "no GPU\n");
    return 1;
  }
  shoal::open_device("cuda");  // loads torch's CUDA library
  copy_from = at::empty({int64_t{2} << 30}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  copy_to = at::empty_like(copy_from);
  constexpr double kGiB = 1 << 30;
  copy_rate = 2 * kGiB / time_of_copy(2 * kGiB) * 1e6;
  std::printf("copy: %.0f GB/s\n", copy_rate / 1e9);
  for (const Model& m : {Model{"llama-1b", 2048, 8192, 32, 8, 64, {32000}},
                         Model{"llama-8b", 4096, 14336, 32, 8, 128, {32000, 128256}}}) {
    std::printf("\n%-44s %10s %9s %8s %10s %10s %9s\n", (m.name + ", 16,384 tokens").c_str(), "us", "GB/s", "of copy",
                "same bytes", "eager us", "faster");
    measure_norms(m);
    measure_rope(m);
    measure_activations(m);
    for (const int64_t vocab : m.vocabs) measure_cross_entropy(m, vocab);
    if (ops::cuda::multiplies_fp8()) measure_fp8(m);
  }
  copy_from = copy_to = Tensor();  // while the library is there to take them back
  return 0;
}
