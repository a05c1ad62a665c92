// Expects two ways of computing to give the same bits, results and gradients.
#pragma once

#include <gtest/gtest.h>

#include "unit/models/ops/grads.h"

namespace shoal::testing {

inline void expect_same(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& a,
                        const std::function<Tensors(const Tensors&)>& b) {
  const Tensors of_a = results_and_grads(inputs, a);
  const Tensors of_b = results_and_grads(inputs, b);
  ASSERT_EQ(of_a.size(), of_b.size());
  for (size_t i = 0; i < of_a.size(); ++i) {
    ASSERT_TRUE(of_a[i].defined() && of_b[i].defined()) << i;
    EXPECT_EQ(of_a[i].scalar_type(), of_b[i].scalar_type()) << i;
    EXPECT_TRUE(of_a[i].equal(of_b[i])) << i;
  }
}

}  // namespace shoal::testing
