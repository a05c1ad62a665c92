// Which version of the kernels runs: one instruction set for all families, chosen once from the CPU's features, or by
// SHOAL_ISA=reference|neon|avx2|avx512. All versions give the same bits; the choice is one of speed alone.
#pragma once

#include <string>
#include <string_view>

#include "kernels/blocks.h"
#include "kernels/convert.h"
#include "kernels/reduce.h"
#include "kernels/update.h"

namespace shoal::kernels {

enum class Isa { reference, neon, avx2, avx512 };
inline constexpr Isa kEveryIsa[] = {Isa::reference, Isa::neon, Isa::avx2, Isa::avx512};

// The functions of update.h, reduce.h, convert.h and blocks.h as one version implements them. They do not check their
// arguments; the public functions do, once for every version.
template <class Step>
struct UpdateKernel {
  void (*run)(const Segment&, const Step&);
};
struct UpdateKernels {
  // They take fp32 states and weights with a master.
  EveryStep::Bases<UpdateKernel> of_steps;
  // AdamW in one pass on what is kept in 16 bits; false: not of this kind, and nothing was done. Null: of no kind.
  bool (*narrow_adamw)(const Segment&, const AdamStep&) = nullptr;

  template <class Step>
  void operator()(const Segment& segment, const Step& step) const {
    static_cast<const UpdateKernel<Step>&>(of_steps).run(segment, step);
  }
};
struct ReduceKernels {
  void (*ordered_fold)(const OrderedFold&);
  void (*sum_squares)(const void* values, DType dtype, int64_t numel, int64_t first_run, double* pieces);
};
struct ConvertKernels {
  void (*convert)(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel);
  void (*add)(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel);
  void (*split)(const float* master, void* weight, void* remainder, int64_t numel);
  void (*join)(const void* weight, const void* remainder, float* master, int64_t numel);
};
struct BlockKernels {
  void (*quantize)(const void* values, DType dtype, int64_t numel, int bits, void* blocks);
  void (*dequantize)(const void* blocks, int bits, void* values, DType dtype, int64_t numel);
  void (*quantize_with_errors)(const float* values, int64_t numel, int bits, void* blocks, const ErrorFeedback&);
};
struct Kernels {
  Isa isa;
  UpdateKernels update;
  ReduceKernels reduce;
  ConvertKernels convert;
  BlockKernels blocks;
};

std::string_view isa_name(Isa isa);

// Empty when this build on this CPU can run the version; otherwise the reason in words.
std::string why_unusable(Isa isa);

// The kernels of one version. Throws an Error with the reason when it is not usable here.
const Kernels& kernels_of(Isa isa);

// The fastest usable version when `wanted` is null or empty; otherwise the named one, or an Error.
Isa choose_isa(const char* wanted);

// The version that every public function uses: choose_isa(SHOAL_ISA), decided at the first call.
const Kernels& active_kernels();

}  // namespace shoal::kernels
