// Stands in for kernels/cuda/update.cu where there is no nvcc.
#include "kernels/cuda/update.h"

#include "kernels/no_cuda/missing.h"

namespace shoal::kernels::cuda {

SegmentTable::SegmentTable(const std::vector<Segment>&, const std::vector<int>&) { throw_no_cuda(); }
SegmentTable::~SegmentTable() = default;

void adam(const SegmentTable&, const AdamStep*, const int*, Stream) { throw_no_cuda(); }
void sgd(const SegmentTable&, const SgdStep*, const int*, Stream) { throw_no_cuda(); }
void adagrad(const SegmentTable&, const AdagradStep*, const int*, Stream) { throw_no_cuda(); }
void lion(const SegmentTable&, const LionStep*, const int*, Stream) { throw_no_cuda(); }

}  // namespace shoal::kernels::cuda
