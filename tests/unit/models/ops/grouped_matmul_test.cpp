#include "models/ops/grouped_matmul.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "unit/models/ops/grads.h"

namespace shoal::models::ops {

using testing::normal_tensor;

namespace {

Groups groups_of(const std::vector<int>& ends, GroupedBy by) { return make_groups(at::tensor(ends, at::kInt), by); }

}  // namespace

TEST(GroupedMatmul, MultipliesEachGroupWithItsMatrix) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = normal_tensor({7, 16}, 1, dtype), dy = normal_tensor({7, 24}, 2, dtype),
                     weight = normal_tensor({4, 24, 16}, 3, dtype);
    for (const std::vector<int>& ends : {std::vector<int>{3, 3, 4, 7}, {0, 7, 7, 7}, {1, 2, 3, 7}}) {
      for (const GroupedBy by : {GroupedBy::loop, GroupedBy::library}) {
        const Groups groups = groups_of(ends, by);
        const at::Tensor y = grouped_linear(x, weight, groups), dx = grouped_input_gradient(dy, weight, groups),
                         dweight = grouped_weight_gradient(dy, x, weight, groups);
        int begin = 0;
        for (int64_t group = 0; group < 4; ++group) {
          const int64_t rows = ends[static_cast<size_t>(group)] - begin;
          const at::Tensor of_x = x.narrow(0, begin, rows), of_dy = dy.narrow(0, begin, rows);
          EXPECT_TRUE(y.narrow(0, begin, rows).equal(of_x.mm(weight[group].t())));
          EXPECT_TRUE(dx.narrow(0, begin, rows).equal(of_dy.mm(weight[group])));
          EXPECT_TRUE(dweight[group].equal(of_dy.t().mm(of_x))) << group;
          begin = ends[static_cast<size_t>(group)];
        }
      }
    }
  }
}

TEST(GroupedMatmul, LoopsOnTheCpu) {
  EXPECT_EQ(grouped_by(normal_tensor({7, 16}, 1, at::kBFloat16), {normal_tensor({4, 24, 16}, 3, at::kBFloat16)}),
            GroupedBy::loop);
}

}  // namespace shoal::models::ops
