// Updates of segments that keep states, or weights without a master, in 16 bits: block by block, small enough for the
// first-level cache, what is narrow is widened, updated by the fp32 kernels and rounded back. So every instruction set
// has every kind of them; AdamW, whose kinds have kernels of their own, comes here for the rest only. See
// [Note: states of 16 bits] in update.h. For update.cpp, and its tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/isa.h"
#include "kernels/segment.h"

namespace shoal::kernels {

inline constexpr int64_t kNarrowBlock = 1024;  // elements

// A block of a state in fp32, while the kernel has it; null where there is no such state.
class WidenedState {
 public:
  WidenedState(const ConvertKernels& kernels, void* state, DType dtype, int64_t numel)
      : kernels_(kernels), state_(state), dtype_(dtype), numel_(numel) {
    if (is_converted()) kernels_.convert(state_, dtype_, wide_.data(), DType::f32, numel_);
  }

  void* values() { return is_converted() ? wide_.data() : state_; }
  void store() const {
    if (is_converted()) kernels_.convert(wide_.data(), DType::f32, state_, dtype_, numel_);
  }

 private:
  bool is_converted() const { return state_ != nullptr && dtype_ != DType::f32; }

  const ConvertKernels& kernels_;
  void* state_;
  DType dtype_;
  int64_t numel_;
  std::array<float, kNarrowBlock> wide_;
};

template <class Step>
void update_narrow(const Kernels& kernels, const Segment& segment, const Step& step) {
  std::array<float, kNarrowBlock> master;
  for (int64_t begin = 0; begin < segment.numel; begin += kNarrowBlock) {
    Segment block = part_of(segment, begin, std::min(begin + kNarrowBlock, segment.numel));
    WidenedState first(kernels.convert, block.first, block.state_dtype, block.numel);
    WidenedState second(kernels.convert, block.second, block.state_dtype, block.numel);
    block.first = first.values();
    block.second = second.values();
    block.state_dtype = DType::f32;
    if (block.master_kind == Master::none) {
      kernels.convert.convert(block.weight, block.weight_dtype, master.data(), DType::f32, block.numel);
      block.master_kind = Master::full;
      block.master = master.data();
    }
    kernels.update(block, step);
    first.store();
    second.store();
  }
}

}  // namespace shoal::kernels
