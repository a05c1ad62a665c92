// Where the input of a matmul comes from. Selective recompute keeps what stands here, which others keep anyway, instead
// of the input itself, and makes the input again in backward: a pass over memory, beside a matmul.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/ops/activation.h"

namespace shoal::models::ops {

struct Origin {
  enum class Op : uint8_t {
    none,              // not known: the input is kept
    rms_norm,          // of {x, weight}
    layer_norm,        // of {x, weight, bias}
    swiglu,            // of {gate, up}
    gelu_exact,        // of {x}
    gelu_tanh,         // of {x}
    rms_norm_one,      // of {x, weight}
    silu,              // of {x}
    gated_gelu_exact,  // of {gate, up}
    gated_gelu_tanh,   // of {gate, up}
    gated_relu,        // of {gate, up}
  };
  Op op = Op::none;
  std::vector<at::Tensor> from;
  double eps = 0;  // of the norms
};

// The bits that the operation gave in forward; without a graph.
at::Tensor make_again(const Origin& origin);

// None for relu, which keeps its result by itself.
Origin activation_origin(const at::Tensor& x, Activation activation);
Origin gated_origin(const at::Tensor& gate, const at::Tensor& up, Activation activation);

// What a matmul reads, and what of it is kept for backward: the value, or its origin.
struct Operand {
  Operand(at::Tensor kept) : value(std::move(kept)) {}  // NOLINT(google-explicit-constructor): most are kept
  Operand(at::Tensor made, Origin kept) : value(std::move(made)), origin(std::move(kept)) {}

  at::Tensor value;
  Origin origin;
};

}  // namespace shoal::models::ops
