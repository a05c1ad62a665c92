// The doors of update.h: check the segment once, then run the version that this machine uses.
#include "kernels/update.h"

#include "base/check.h"
#include "kernels/isa.h"
#include "kernels/segment.h"
#include "kernels/update_narrow.h"

namespace shoal::kernels {
namespace {

void check(const Segment& s, bool needs_first, bool needs_second) {
  check_segment(s);
  if (s.numel == 0) return;
  SHOAL_CHECK(!needs_first || s.first != nullptr, "(a segment of {} elements)", s.numel);
  SHOAL_CHECK(!needs_second || s.second != nullptr, "(a segment of {} elements)", s.numel);
}

template <class Step>
void run(const Kernels& kernels, void (*kernel)(const Segment&, const Step&), const Segment& segment,
         const Step& step) {
  if (is_narrow(segment)) return update_narrow(kernels, kernel, segment, step);
  kernel(segment, step);
}

}  // namespace

void adam(const Segment& segment, const AdamStep& step) {
  check(segment, true, true);
  const UpdateKernels& kernels = active_kernels().update;
  if (is_narrow(segment) && kernels.narrow_adamw != nullptr && kernels.narrow_adamw(segment, step)) return;
  run(active_kernels(), kernels.adam, segment, step);
}

void sgd(const Segment& segment, const SgdStep& step) {
  check(segment, step.momentum != 0, false);
  run(active_kernels(), active_kernels().update.sgd, segment, step);
}

void adagrad(const Segment& segment, const AdagradStep& step) {
  check(segment, true, false);
  run(active_kernels(), active_kernels().update.adagrad, segment, step);
}

void lion(const Segment& segment, const LionStep& step) {
  check(segment, true, false);
  run(active_kernels(), active_kernels().update.lion, segment, step);
}

}  // namespace shoal::kernels
