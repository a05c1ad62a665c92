// The feed-forward part of a mixture of experts: each token goes to the experts that its router chose, and their
// results are added with the router's weights.
//
// [Note: how tokens reach their experts]
// The pairs of a token and an expert are sorted by expert, stably, so that an expert's tokens stand together in the
// order of the batch, and each of its matrices is one product with them (grouped_matmul.h). There are as many pairs
// whatever the router chose, so no shape depends on values and a GPU is not waited for. The way back adds a token's
// results in the order in which the router ranked its experts, never by atomic additions: the same bits in every run.
// Backward does not keep the sorted tokens, nor what the activation function gave, nor the experts' results: it sorts
// the tokens again, computes the function again, and finds the gradient of a weight, which is dy . down(h), as
// (dy down) . h.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/ops/grouped_matmul.h"
#include "models/ops/origin.h"

namespace shoal::models::ops {

// Pairs of a token and an expert that its router chose, sorted by expert. Pair i is the one of rank i % k of token i /
// k.
struct Routes {
  at::Tensor weights;  // [tokens, k], in the dtype of the tokens: what an expert's result counts
  at::Tensor pairs;    // [pairs] int64: which pair stands here
  at::Tensor places;   // [pairs] int64: where a pair stands
  at::Tensor ends;     // [experts] int32: behind an expert's last pair

  int64_t per_token() const { return weights.size(1); }
  at::Tensor tokens() const;  // [pairs] int64: whose pair stands here
  at::Tensor counts() const;  // [experts] int64: how many tokens an expert got
};

// chosen [tokens, k] int64, the best first, of `experts` experts.
Routes make_routes(const at::Tensor& chosen, const at::Tensor& weights, int64_t experts);

struct ExpertWeights {
  at::Tensor gate_up;  // [experts, 2 ffn, hidden]: gate, then up
  at::Tensor down;     // [experts, hidden, ffn]
};

// x [..., hidden] -> the same shape: of each token the sum over its experts of weight * down(silu(gate x) * up x).
// An x with an origin is not kept, as in linear.h.
at::Tensor experts(const Operand& x, const Routes& routes, const ExpertWeights& weights);
// The same, multiplied in a given way.
at::Tensor experts(const Operand& x, const Routes& routes, const ExpertWeights& weights, GroupedBy by);

}  // namespace shoal::models::ops
