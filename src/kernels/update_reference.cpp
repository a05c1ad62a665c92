// The updates one element at a time, by the formulas of update_steps.h. The other versions must give these bits.
#include "kernels/element.h"
#include "kernels/isa_parts.h"

namespace shoal::kernels {
namespace {

float load_master(const Segment& s, int64_t i) {
  switch (s.master_kind) {
    case Master::weight: return static_cast<const float*>(s.weight)[i];
    case Master::remainder:
      return whole_of(static_cast<const uint16_t*>(s.weight)[i], static_cast<const uint16_t*>(s.master)[i]);
    case Master::full: return static_cast<const float*>(s.master)[i];
    case Master::none: __builtin_trap();  // update_narrow.h takes it apart
  }
  return 0;
}

void store_master(const Segment& s, int64_t i, float p) {
  switch (s.master_kind) {
    case Master::weight: static_cast<float*>(s.weight)[i] = p; return;
    case Master::remainder:
      static_cast<uint16_t*>(s.weight)[i] = high_half(p);
      static_cast<uint16_t*>(s.master)[i] = low_half(p);
      return;
    case Master::full:
      static_cast<float*>(s.master)[i] = p;
      static_cast<uint16_t*>(s.weight)[i] = s.weight_dtype == DType::bf16 ? to_bf16(p) : to_f16(p);
      return;
    case Master::none: __builtin_trap();  // update_narrow.h takes it apart
  }
}

template <class Step>
void update_plain(const Segment& s, const Step& given) {
  const Step step = given;  // no store through a pointer can change it: what is the same for all elements is made once
  auto* first = static_cast<float*>(s.first);
  auto* second = static_cast<float*>(s.second);
  float none = 0;
  for (int64_t i = 0; i < s.numel; ++i) {
    store_master(s, i,
                 step.plain(load_master(s, i), load_element(s.grad, s.grad_dtype, i),
                            first == nullptr ? none : first[i], second == nullptr ? none : second[i]));
  }
}

template <class... Step>
UpdateKernels plain_kernels(StepList<Step...>) {
  return {{{update_plain<Step>}...}};
}

}  // namespace

UpdateKernels update_reference() { return plain_kernels(EveryStep{}); }

}  // namespace shoal::kernels
