// Rotary positions on q and k as they come out of their projections. On a GPU both are turned by one kernel, in place
// of their layout: attention then reads them without a copy.
#pragma once

#include <ATen/core/Tensor.h>

namespace shoal::models::ops {

struct RotaryTable {
  // [time, dim / 2], or of fewer pairs; [batch * time, dim / 2] where each row has positions of its own. On the CPU in
  // the dtype of q and k, or in fp32: then they are turned in fp32 and rounded once. On a GPU in fp32.
  at::Tensor cos, sin;
};

struct Rotated {
  at::Tensor q, k;  // [batch, heads, time, dim], [batch, kv_heads, time, dim]
};

// q [batch, time, heads, dim], k [batch, time, kv_heads, dim]. Dimension i turns with i + dim / 2; of heads that are
// wider than the table's turns the first dimensions do, and the others stay.
Rotated rotate(const at::Tensor& q, const at::Tensor& k, const RotaryTable& table);

// Of a table by position, the rows of these positions. positions [batch, time] -> [batch * time, dim / 2].
RotaryTable at_positions(const RotaryTable& table, const at::Tensor& positions);

// The dtype that a table for tensors like x must have.
at::ScalarType rotary_table_dtype(const at::Tensor& x);

}  // namespace shoal::models::ops
