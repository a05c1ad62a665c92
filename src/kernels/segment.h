// Segments of an update, in parts: what the host and the GPU need to cut one, and to know that it is whole.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "kernels/update.h"

namespace shoal::kernels {

// What is kept of the master beside a weight of this dtype. `narrow`: nothing, where the weight has 16 bits.
inline Master master_of(DType weight_dtype, bool narrow = false) {
  switch (weight_dtype) {
    case DType::f32: return Master::weight;
    case DType::bf16: return narrow ? Master::none : Master::remainder;
    case DType::f16: return narrow ? Master::none : Master::full;
  }
  return Master::weight;
}

// Bytes an element of what Segment::master points at.
inline size_t master_nbytes(Master kind) {
  switch (kind) {
    case Master::weight: return 0;
    case Master::remainder: return sizeof(uint16_t);
    case Master::full: return sizeof(float);
    case Master::none: return 0;
  }
  return 0;
}

// The same elements from `begin` to `end`.
inline Segment part_of(const Segment& whole, int64_t begin, int64_t end) {
  const auto advance = [begin](auto* pointer, size_t element) {
    const auto address = reinterpret_cast<uintptr_t>(pointer) + static_cast<uintptr_t>(begin) * element;
    return pointer == nullptr ? nullptr : reinterpret_cast<decltype(pointer)>(address);
  };
  Segment part = whole;
  part.numel = end - begin;
  part.weight = advance(whole.weight, nbytes_of(whole.weight_dtype));
  part.master = advance(whole.master, master_nbytes(whole.master_kind));
  part.grad = advance(whole.grad, nbytes_of(whole.grad_dtype));
  part.first = advance(whole.first, nbytes_of(whole.state_dtype));
  part.second = advance(whole.second, nbytes_of(whole.state_dtype));
  return part;
}

// Whether states or weights are of 16 bits where the kernels of an instruction set take fp32 only; see
// [Note: states of 16 bits] in update.h.
inline bool is_narrow(const Segment& s) { return s.state_dtype != DType::f32 || s.master_kind == Master::none; }

// Pointers, dtypes and the kind of master fit each other. Moments are the optimizer's to ask for.
inline void check_segment(const Segment& s) {
  SHOAL_CHECK_GE(s.numel, 0);
  if (s.numel == 0) return;
  SHOAL_CHECK(s.weight != nullptr && s.grad != nullptr, "(a segment of {} elements)", s.numel);
  SHOAL_CHECK((s.master != nullptr) == (master_nbytes(s.master_kind) > 0), "(master kind {})",
              static_cast<int>(s.master_kind));
  SHOAL_CHECK((s.weight_dtype == DType::f32) == (s.master_kind == Master::weight), "(weight {}, master kind {})",
              name_of(s.weight_dtype), static_cast<int>(s.master_kind));
  SHOAL_CHECK(s.master_kind != Master::remainder || s.weight_dtype == DType::bf16, "(weight {})",
              name_of(s.weight_dtype));
}

}  // namespace shoal::kernels
