// Whether this CPU has arithmetic for 16-bit numbers that products of matrices can use. It decides only: who multiplies
// in fp32 instead is aten/fp32_products.h.
#pragma once

#include <string>

#include "shoal/dtype.h"

namespace shoal::kernels {

// Empty where torch multiplies matrices of this dtype by instructions of this CPU; otherwise the reason in words: "this
// processor has no bf16 arithmetic". It asks for features, never for a model's name, so that all ranks of one kind of
// machine give the same answer.
std::string why_no_arithmetic(DType dtype);

}  // namespace shoal::kernels
