// See grouped_matmul.h.
#include "models/ops/grouped_matmul.h"

#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/check.h"
#include "models/ops/weight_gradient.h"

namespace shoal::models::ops {

namespace {

using at::Tensor;

// Calls use(group, first row, rows) for each group that has rows.
void each_group(const Groups& groups, const std::function<void(int64_t, int64_t, int64_t)>& use) {
  SHOAL_CHECK(groups.ends.is_cpu() && groups.ends.scalar_type() == at::kInt);
  const int32_t* ends = groups.ends.const_data_ptr<int32_t>();
  int64_t begin = 0;
  for (int64_t group = 0; group < groups.ends.size(0); ++group) {
    const int64_t rows = ends[group] - begin;
    if (rows > 0) use(group, begin, rows);
    begin = ends[group];
  }
}

// a of each group's rows times what `matrix` gives for the group.
Tensor products(const Tensor& a, int64_t width, const Groups& groups,
                const std::function<Tensor(int64_t group)>& matrix) {
  const Tensor made = at::empty({a.size(0), width}, a.options());
  each_group(groups, [&](int64_t group, int64_t begin, int64_t rows) {
    Tensor part = made.narrow(0, begin, rows);
    at::mm_out(part, a.narrow(0, begin, rows), matrix(group));
  });
  return made;
}

}  // namespace

// The library wants rows at multiples of 16 bytes.
GroupedBy grouped_by(const Tensor& x, at::TensorList weights) {
  constexpr int64_t kStep = 8;  // of 16 bits
  const bool aligned = std::all_of(weights.begin(), weights.end(), [](const Tensor& weight) {
    return weight.size(1) % kStep == 0 && weight.size(2) % kStep == 0;
  });
  return x.is_cuda() && x.scalar_type() == at::kBFloat16 && aligned ? GroupedBy::library : GroupedBy::loop;
}

Groups make_groups(const Tensor& ends, GroupedBy by) { return {by == GroupedBy::loop ? ends.cpu() : ends, by}; }

Tensor grouped_linear(const Tensor& x, const Tensor& weight, const Groups& groups) {
  if (groups.by == GroupedBy::library) return at::_grouped_mm(x, weight.transpose(1, 2), groups.ends);
  return products(x, weight.size(1), groups, [&](int64_t group) { return weight.select(0, group).t(); });
}

Tensor grouped_input_gradient(const Tensor& dy, const Tensor& weight, const Groups& groups) {
  if (groups.by == GroupedBy::library) return at::_grouped_mm(dy, weight, groups.ends);
  return products(dy, weight.size(2), groups, [&](int64_t group) { return weight.select(0, group); });
}

Tensor grouped_weight_gradient(const Tensor& dy, const Tensor& x, const Tensor& weight, const Groups& groups) {
  if (groups.by == GroupedBy::library) {
    const Tensor made = at::_grouped_mm(dy.t(), x, groups.ends);
    // A sum over no rows: the library's kernels do not say what they leave there.
    const Tensor begins = at::empty_like(groups.ends);
    begins.narrow(0, 0, 1).zero_();
    begins.narrow(0, 1, begins.size(0) - 1).copy_(groups.ends.narrow(0, 0, begins.size(0) - 1));
    return made.masked_fill_(groups.ends.eq(begins).view({-1, 1, 1}), 0);
  }
  return make_weight_gradient(weight, [&](const Tensor& target) {
    const Tensor made = target.defined() ? target : at::empty(weight.sizes(), weight.options());
    std::vector<bool> has_rows(static_cast<size_t>(weight.size(0)));
    each_group(groups, [&](int64_t group, int64_t begin, int64_t rows) {
      Tensor part = made.select(0, group);
      at::mm_out(part, dy.narrow(0, begin, rows).t(), x.narrow(0, begin, rows));
      has_rows[static_cast<size_t>(group)] = true;
    });
    for (int64_t group = 0; group < weight.size(0); ++group) {
      if (!has_rows[static_cast<size_t>(group)]) made.select(0, group).zero_();
    }
    return made;
  });
}

}  // namespace shoal::models::ops
