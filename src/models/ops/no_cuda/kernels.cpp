// Stands in for all of models/ops/cuda where there is no nvcc.
#include "kernels/no_cuda/missing.h"
#include "models/ops/cuda/activation.h"
#include "models/ops/cuda/cross_entropy.h"
#include "models/ops/cuda/fp8.h"
#include "models/ops/cuda/norm.h"
#include "models/ops/cuda/rope.h"

namespace shoal::models::ops::cuda {

using kernels::cuda::throw_no_cuda;

void rms_norm(const NormForward&, Stream) { throw_no_cuda(); }
void layer_norm(const NormForward&, Stream) { throw_no_cuda(); }
void rms_norm_backward(const NormBackward&, Stream) { throw_no_cuda(); }
void layer_norm_backward(const NormBackward&, Stream) { throw_no_cuda(); }
int64_t norm_partials_numel(int64_t, int64_t, bool) { throw_no_cuda(); }

void rope(const Rope&, Stream) { throw_no_cuda(); }

void swiglu(const SwigluForward&, Stream) { throw_no_cuda(); }
void swiglu_backward(const SwigluBackward&, Stream) { throw_no_cuda(); }
void gelu(const GeluForward&, Stream) { throw_no_cuda(); }
void gelu_backward(const GeluBackward&, Stream) { throw_no_cuda(); }

void cross_entropy(const CrossEntropy&, Stream) { throw_no_cuda(); }
void mean_loss(const float*, const int64_t*, int64_t, float*, float*, Stream) { throw_no_cuda(); }
void scale_gradient(const ScaleGradient&, Stream) { throw_no_cuda(); }

bool multiplies_fp8() { throw_no_cuda(); }
void to_fp8(const ToFp8&, Stream) { throw_no_cuda(); }

}  // namespace shoal::models::ops::cuda
