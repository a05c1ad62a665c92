// See fp32_products.h.
#include "aten/fp32_products.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_cpu_dispatch.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_cpu_dispatch.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/addmv_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <tuple>

#include "aten/widen.h"

namespace shoal::aten {

namespace {

using at::Tensor;

// [Note: kernels of torch that are replaced]
// torch multiplies bf16 on such a CPU in loops of its own, many times slower than fp32, after a failed attempt that it
// reports with a backtrace; fp16 fares worse. Autograd, modules of Hugging Face and our models all reach a product
// through torch's dispatcher, so that is where ours are put: once a process, for dtypes that were asked for. Any other
// dtype goes on to the kernel that torch has. The operand that is larger is widened a block at a time, so that what is
// beside the tensors is small and still in the cache when it is multiplied; blocks depend on shapes alone.

constexpr int64_t kBlockNumel = int64_t{1} << 20;  // of fp32 values that are made at once
constexpr int64_t kLeastInBlock = 64;              // rows or columns

std::array<std::atomic<bool>, 2> is_asked_for;  // bf16, fp16: dtypes whose products are made in fp32

bool is_wide(at::ScalarType dtype) {
  return is_16_bit(dtype) && is_asked_for[dtype == at::kHalf ? 1 : 0].load(std::memory_order_relaxed);
}
bool are_wide(std::initializer_list<std::reference_wrapper<const Tensor>> tensors) {
  const at::ScalarType dtype = tensors.begin()->get().scalar_type();
  return is_wide(dtype) && std::all_of(tensors.begin(), tensors.end(), [&](const Tensor& tensor) {
           return tensor.scalar_type() == dtype && tensor.numel() > 0;
         });
}

// out = a b, or with a `self` beta self + alpha a b; the matrix `self` may repeat a row.
struct Sum {
  Tensor self;
  at::Scalar beta = 0, alpha = 1;
};
void multiply_into(const Tensor& out, const Tensor& a, const Tensor& b, const Sum& sum = {}) {
  const bool by_columns = b.numel() >= a.numel();  // which operand is cut, and so is the result
  const int64_t dim = by_columns ? 1 : 0;
  const Tensor whole = widened(by_columns ? a : b);
  const int64_t block = std::max(kLeastInBlock, kBlockNumel / std::max(a.size(1), out.size(1 - dim)));
  for (int64_t begin = 0; begin < out.size(dim); begin += block) {
    const int64_t count = std::min(block, out.size(dim) - begin);
    const Tensor cut = widened((by_columns ? b : a).narrow(dim, begin, count));
    const Tensor &left = by_columns ? whole : cut, &right = by_columns ? cut : whole;
    const Tensor part = sum.self.defined() ? at::cpu::addmm(widened(sum.self.narrow(dim, begin, count)), left, right,
                                                            sum.beta, sum.alpha)
                                           : at::cpu::mm(left, right);
    convert_rows(part, out.narrow(dim, begin, count));
  }
}

Tensor product(const Tensor& a, const Tensor& b, const Sum& sum = {}) {
  Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  multiply_into(out, a, b, sum);
  return out;
}

Tensor& put(Tensor& out, const Tensor& made) {
  at::native::resize_output(out, made.sizes());
  return out.copy_(made);
}

bool are_wide_matrices(const Tensor& a, const Tensor& b) {
  return are_wide({a, b}) && a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0);
}

Tensor wide_mm(const Tensor& a, const Tensor& b) { return are_wide_matrices(a, b) ? product(a, b) : at::cpu::mm(a, b); }

Tensor& wide_mm_out(const Tensor& a, const Tensor& b, Tensor& out) {
  if (!are_wide_matrices(a, b) || out.scalar_type() != a.scalar_type()) return at::cpu::mm_out(out, a, b);
  return put(out, product(a, b));
}

bool can_add(const Tensor& self, const Tensor& a, const Tensor& b) {
  if (!are_wide_matrices(a, b) || self.scalar_type() != a.scalar_type() || self.dim() > 2) return false;
  const auto fits = [](int64_t given, int64_t wanted) { return given == 1 || given == wanted; };
  return (self.dim() < 1 || fits(self.size(-1), b.size(1))) && (self.dim() < 2 || fits(self.size(0), a.size(0)));
}

Tensor wide_addmm(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                  const at::Scalar& alpha) {
  if (!can_add(self, a, b)) return at::cpu::addmm(self, a, b, beta, alpha);
  return product(a, b, {self.expand({a.size(0), b.size(1)}), beta, alpha});
}

Tensor& wide_addmm_out(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                       const at::Scalar& alpha, Tensor& out) {
  if (!can_add(self, a, b) || out.scalar_type() != a.scalar_type())
    return at::cpu::addmm_out(out, self, a, b, beta, alpha);
  return put(out, wide_addmm(self, a, b, beta, alpha));
}

Tensor& wide_addmm_in_place(Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                            const at::Scalar& alpha) {
  if (!can_add(self, a, b) || self.dim() != 2 || self.size(0) != a.size(0) || self.size(1) != b.size(1))
    return at::cpu::addmm_(self, a, b, beta, alpha);
  return self.copy_(wide_addmm(self, a, b, beta, alpha));
}

Tensor wide_addmv(const Tensor& self, const Tensor& a, const Tensor& x, const at::Scalar& beta,
                  const at::Scalar& alpha) {
  if (!are_wide({a, x, self})) return at::cpu::addmv(self, a, x, beta, alpha);
  return rounded(at::cpu::addmv(widened(self), widened(a), widened(x), beta, alpha), a.scalar_type());
}

Tensor& wide_addmv_out(const Tensor& self, const Tensor& a, const Tensor& x, const at::Scalar& beta,
                       const at::Scalar& alpha, Tensor& out) {
  if (!are_wide({a, x, self}) || out.scalar_type() != a.scalar_type())
    return at::cpu::addmv_out(out, self, a, x, beta, alpha);
  return put(out, wide_addmv(self, a, x, beta, alpha));
}

Tensor& wide_addmv_in_place(Tensor& self, const Tensor& a, const Tensor& x, const at::Scalar& beta,
                            const at::Scalar& alpha) {
  if (!are_wide({a, x, self})) return at::cpu::addmv_(self, a, x, beta, alpha);
  return self.copy_(wide_addmv(self, a, x, beta, alpha));
}

Tensor wide_bmm(const Tensor& a, const Tensor& b) {
  if (!are_wide({a, b})) return at::cpu::bmm(a, b);
  return rounded(at::cpu::bmm(widened(a), widened(b)), a.scalar_type());
}

Tensor& wide_bmm_out(const Tensor& a, const Tensor& b, Tensor& out) {
  if (!are_wide({a, b}) || out.scalar_type() != a.scalar_type()) return at::cpu::bmm_out(out, a, b);
  return put(out, wide_bmm(a, b));
}

Tensor wide_baddbmm(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                    const at::Scalar& alpha) {
  if (!are_wide({a, b, self})) return at::cpu::baddbmm(self, a, b, beta, alpha);
  return rounded(at::cpu::baddbmm(widened(self), widened(a), widened(b), beta, alpha), a.scalar_type());
}

Tensor& wide_baddbmm_out(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                         const at::Scalar& alpha, Tensor& out) {
  if (!are_wide({a, b, self}) || out.scalar_type() != a.scalar_type())
    return at::cpu::baddbmm_out(out, self, a, b, beta, alpha);
  return put(out, wide_baddbmm(self, a, b, beta, alpha));
}

Tensor& wide_baddbmm_in_place(Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                              const at::Scalar& alpha) {
  if (!are_wide({a, b, self})) return at::cpu::baddbmm_(self, a, b, beta, alpha);
  return self.copy_(wide_baddbmm(self, a, b, beta, alpha));
}

using Mask = std::optional<Tensor>;

std::tuple<Tensor, Tensor> wide_attention(const Tensor& q, const Tensor& k, const Tensor& v, double dropout,
                                          bool causal, const Mask& mask, std::optional<double> scale) {
  if (!are_wide({q, k, v}))
    return at::cpu::_scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, causal, mask, scale);
  const auto [out, logsumexp] = at::cpu::_scaled_dot_product_flash_attention_for_cpu(
      widened(q), widened(k), widened(v), dropout, causal, widened(mask), scale);
  return {rounded(out, q.scalar_type()), logsumexp};
}

std::tuple<Tensor, Tensor, Tensor> wide_attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                           const Tensor& v, const Tensor& out, const Tensor& logsumexp,
                                                           double dropout, bool causal, const Mask& mask,
                                                           std::optional<double> scale) {
  if (!are_wide({q, k, v, grad, out})) {
    return at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, out, logsumexp, dropout, causal,
                                                                         mask, scale);
  }
  const auto [dq, dk, dv] = at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward(
      widened(grad), widened(q), widened(k), widened(v), widened(out), logsumexp, dropout, causal, widened(mask),
      scale);
  const at::ScalarType dtype = q.scalar_type();
  return {rounded(dq, dtype), rounded(dk, dtype), rounded(dv, dtype)};
}

// torch says of the first kernel that is replaced that it was; the banner says it better.
class NoWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

void replace_kernels() {
  NoWarnings silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  // Never destroyed: the kernels are torch's own as long as the process lives.
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library->impl("mm", wide_mm);
  library->impl("mm.out", wide_mm_out);
  library->impl("addmm", wide_addmm);
  library->impl("addmm.out", wide_addmm_out);
  library->impl("addmm_", wide_addmm_in_place);
  library->impl("addmv", wide_addmv);
  library->impl("addmv.out", wide_addmv_out);
  library->impl("addmv_", wide_addmv_in_place);
  library->impl("bmm", wide_bmm);
  library->impl("bmm.out", wide_bmm_out);
  library->impl("baddbmm", wide_baddbmm);
  library->impl("baddbmm.out", wide_baddbmm_out);
  library->impl("baddbmm_", wide_baddbmm_in_place);
  library->impl("_scaled_dot_product_flash_attention_for_cpu", wide_attention);
  library->impl("_scaled_dot_product_flash_attention_for_cpu_backward", wide_attention_backward);
}

}  // namespace

void make_products_in_fp32(c10::ScalarType dtype) {
  static std::once_flag replaced;
  std::call_once(replaced, replace_kernels);
  is_asked_for[dtype == at::kHalf ? 1 : 0] = true;
}

}  // namespace shoal::aten
