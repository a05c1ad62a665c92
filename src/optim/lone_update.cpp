// See lone_update.h.
#include "optim/lone_update.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <variant>

#include "base/check.h"
#include "kernels/convert.h"
#include "kernels/segment.h"

namespace shoal {

namespace {

constexpr int64_t kWidened = 1024;  // elements at a time, on the stack

void run_kernel(const kernels::Segment& segment, const kernels::AdamStep& step) { kernels::adam(segment, step); }
void run_kernel(const kernels::Segment& segment, const kernels::SgdStep& step) { kernels::sgd(segment, step); }
void run_kernel(const kernels::Segment& segment, const kernels::AdagradStep& step) { kernels::adagrad(segment, step); }
void run_kernel(const kernels::Segment& segment, const kernels::LionStep& step) { kernels::lion(segment, step); }

std::byte* element(void* memory, int64_t index, DType dtype) {
  return static_cast<std::byte*>(memory) + static_cast<size_t>(index) * nbytes_of(dtype);
}

const std::byte* element(const void* memory, int64_t index, DType dtype) {
  return static_cast<const std::byte*>(memory) + static_cast<size_t>(index) * nbytes_of(dtype);
}

// Elements [begin, begin + numel) of a state in fp32, while the kernel has them; null where there is no such state.
class WideState {
 public:
  WideState(void* state, DType dtype, int64_t begin, int64_t numel)
      : at_(state == nullptr ? nullptr : element(state, begin, dtype)), dtype_(dtype), numel_(numel) {
    if (at_ != nullptr && dtype_ != DType::f32) kernels::convert(at_, dtype_, wide_.data(), DType::f32, numel_);
  }

  float* values() {
    if (at_ == nullptr) return nullptr;
    return dtype_ == DType::f32 ? reinterpret_cast<float*>(at_) : wide_.data();
  }
  void store() const {
    if (at_ != nullptr && dtype_ != DType::f32) kernels::convert(wide_.data(), DType::f32, at_, dtype_, numel_);
  }

 private:
  std::byte* at_;
  DType dtype_;
  int64_t numel_;
  std::array<float, kWidened> wide_;
};

template <class Step>
void update_block(const LoneTensor& tensor, const Step& step, int64_t begin, int64_t numel) {
  std::array<float, kWidened> master;
  WideState first(tensor.first, tensor.state_dtype, begin, numel);
  WideState second(tensor.second, tensor.state_dtype, begin, numel);
  kernels::Segment segment;
  segment.numel = numel;
  segment.weight = element(tensor.weight, begin, tensor.weight_dtype);
  segment.weight_dtype = tensor.weight_dtype;
  segment.grad = element(tensor.grad, begin, tensor.grad_dtype);
  segment.grad_dtype = tensor.grad_dtype;
  segment.first = first.values();
  segment.second = second.values();
  if (tensor.weight_dtype != DType::f32) {
    kernels::convert(segment.weight, tensor.weight_dtype, master.data(), DType::f32, numel);
    segment.master_kind = kernels::Master::full;
    segment.master = master.data();
  }
  kernels::check_segment(segment);
  run_kernel(segment, step);
  first.store();
  second.store();
}

}  // namespace

void update_alone(const LoneTensor& tensor, const GroupSteps& steps, const ParallelFor& parallel_for) {
  std::visit(
      [&](const auto& of_groups) {
        SHOAL_CHECK_EQ(of_groups.size(), 1u);
        const bool wide = tensor.weight_dtype == DType::f32 && tensor.state_dtype == DType::f32;
        parallel_for(tensor.numel, [&](int64_t begin, int64_t end) {
          const int64_t most = wide ? end - begin : kWidened;
          for (int64_t at = begin; at < end; at += most)
            update_block(tensor, of_groups[0], at, std::min(most, end - at));
        });
      },
      steps);
}

}  // namespace shoal
