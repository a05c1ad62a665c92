// Products of rows that stand in groups, one after the other, with a matrix for each group: what experts compute. On a
// GPU, in bf16, each is one launch of the library's that reads the groups' ends on the device; anywhere else a loop of
// products, which on a GPU waits for the ends.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace shoal::models::ops {

enum class GroupedBy : uint8_t { library, loop };

struct Groups {
  at::Tensor ends;  // [groups] int32, on the device of the rows: group g is rows [ends[g - 1], ends[g])
  GroupedBy by = GroupedBy::loop;
};

// How x [rows, in] is to be multiplied with such weights [groups, out, in].
GroupedBy grouped_by(const at::Tensor& x, at::TensorList weights);

// Makes groups of `ends`; where they are looped over, the ends are brought to the host.
Groups make_groups(const at::Tensor& ends, GroupedBy by);

// x [rows, in], weight [groups, out, in] -> [rows, out]: each row by its group's matrix.
at::Tensor grouped_linear(const at::Tensor& x, const at::Tensor& weight, const Groups& groups);
// dy [rows, out] -> [rows, in], the gradient of x.
at::Tensor grouped_input_gradient(const at::Tensor& dy, const at::Tensor& weight, const Groups& groups);
// dy [rows, out], x [rows, in] -> [groups, out, in], the gradient of weight; 0 of a group without rows.
at::Tensor grouped_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                   const Groups& groups);

}  // namespace shoal::models::ops
