// Stands in for the models' kernels (kernels/cuda/norm.cu, rope.cu, activation.cu, cross_entropy.cu,
// fp8.cu) where there is no nvcc.
#include "kernels/cuda/activation.h"
#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/rope.h"
#include "kernels/no_cuda/missing.h"

namespace shoal::kernels::cuda {

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

}  // namespace shoal::kernels::cuda
