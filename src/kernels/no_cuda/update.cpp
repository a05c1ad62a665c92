// Stands in for kernels/cuda/update.cu where there is no nvcc.
#include "kernels/cuda/update.h"

#include "kernels/no_cuda/missing.h"

namespace shoal::kernels::cuda {

SegmentTable::SegmentTable(const std::vector<Segment>&, const std::vector<int>&) { throw_no_cuda(); }
SegmentTable::~SegmentTable() = default;

void update(const SegmentTable&, const AnyStep&, const int*, Stream) { throw_no_cuda(); }

}  // namespace shoal::kernels::cuda
