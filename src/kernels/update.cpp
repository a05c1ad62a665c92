// The door of update.h: checks the segment once, then runs the version that this machine uses.
#include "kernels/update.h"

#include "base/check.h"
#include "kernels/isa.h"
#include "kernels/segment.h"
#include "kernels/update_narrow.h"

namespace shoal::kernels {
namespace {

template <class Step>
void check(const Segment& s, const Step& step) {
  check_segment(s);
  if (s.numel == 0 || !keeps_states(step)) return;
  SHOAL_CHECK(kStates<Step> < 1 || s.first != nullptr, "(a segment of {} elements)", s.numel);
  SHOAL_CHECK(kStates<Step> < 2 || s.second != nullptr, "(a segment of {} elements)", s.numel);
}

// Whether this version has one pass for it, and made it.
template <class Step>
bool update_narrow_at_once(const UpdateKernels&, const Segment&, const Step&) {
  return false;
}
bool update_narrow_at_once(const UpdateKernels& kernels, const Segment& segment, const AdamStep& step) {
  return kernels.narrow_adamw != nullptr && kernels.narrow_adamw(segment, step);
}

}  // namespace

void update(const Segment& segment, const AnyStep& any) {
  std::visit(
      [&](const auto* step) {
        check(segment, *step);
        const Kernels& kernels = active_kernels();
        if (!is_narrow(segment)) return kernels.update(segment, *step);
        if (!update_narrow_at_once(kernels.update, segment, *step)) update_narrow(kernels, segment, *step);
      },
      any);
}

}  // namespace shoal::kernels
