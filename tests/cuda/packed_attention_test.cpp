// Attention within documents on a GPU against the CPU, outputs and gradients.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "cuda/torch_gpu.h"
#include "models/layers.h"

namespace shoal::testing {
namespace {

std::vector<at::Tensor> attention_and_grads(at::Device device, at::ScalarType dtype, int64_t kv_heads, int64_t dim,
                                            models::Attention how = {}) {
  const std::vector<std::vector<int64_t>> rows = {{70, 1, 129}, {200}};
  const auto documents = models::make_documents(rows, 200, device);
  const auto input = [&](int64_t heads, uint64_t seed) {
    const at::Tensor x = at::empty({2, heads, 200, dim}).normal_(0, 1, at::detail::createCPUGenerator(seed));
    return x.to(device, dtype).set_requires_grad(true);
  };
  const at::Tensor q = input(4, 1), k = input(kv_heads, 2), v = input(kv_heads, 3);
  how.documents = documents.get();
  const at::Tensor out = models::causal_attention(q, k, v, how, {});
  const at::Tensor weights = at::arange(out.numel()).reshape(out.sizes()).to(at::kFloat).sin().to(device, dtype);
  torch::autograd::backward({out}, {weights});
  std::vector<at::Tensor> all;
  for (const at::Tensor& x : {out.detach(), q.grad(), k.grad(), v.grad()}) all.push_back(x.to(at::kCPU, at::kFloat));
  return all;
}

TEST(PackedAttention, IsThatOfTheCpu) {
  SHOAL_NEEDS_GPU();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t kv_heads : {1, 2, 4}) {
      for (const int64_t dim : {12, 64, 128}) {
        const auto here = attention_and_grads(gpu(), dtype, kv_heads, dim);
        const auto wanted = attention_and_grads(at::kCPU, at::kFloat, kv_heads, dim);
        // Inputs are rounded to the dtype; sums are in fp32 in both.
        const double allowed = dtype == at::kFloat ? 1e-4 : dtype == at::kHalf ? 1e-2 : 6e-2;
        for (size_t i = 0; i < wanted.size(); ++i) {
          const double scale = wanted[i].abs().max().item<double>();
          EXPECT_LT(here[i].sub(wanted[i]).abs().max().item<double>(), allowed * scale)
              << i << " " << c10::toString(dtype) << " " << kv_heads << " " << dim;
        }
      }
    }
  }
}

// By chunks of the library's products, whose scores are in fp32 also from 16 bits.
TEST(PackedAttention, WithinWindowsAndUnderACapIsThatOfTheCpu) {
  SHOAL_NEEDS_GPU();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t kv_heads : {1, 2, 4}) {
      for (const models::Attention& how : {models::Attention{.window = 20}, models::Attention{.softcap = 2}}) {
        const auto here = attention_and_grads(gpu(), dtype, kv_heads, 12, how);
        const auto wanted = attention_and_grads(at::kCPU, at::kFloat, kv_heads, 12, how);
        const double allowed = dtype == at::kFloat ? 1e-4 : dtype == at::kHalf ? 1e-2 : 6e-2;
        for (size_t i = 0; i < wanted.size(); ++i) {
          const double scale = wanted[i].abs().max().item<double>();
          EXPECT_LT(here[i].sub(wanted[i]).abs().max().item<double>(), allowed * scale)
              << i << " " << c10::toString(dtype) << " " << kv_heads << " window " << how.window;
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal::testing
