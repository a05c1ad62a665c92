#include "engine/generator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

at::Tensor drawn(at::Generator generator) { return at::empty({8}).uniform_(0, 1, generator); }

TEST(Generator, RepeatsBySeedAndDiffersBetweenSeeds) {
  EXPECT_TRUE(drawn(make_generator(at::kCPU, 3)).equal(drawn(make_generator(at::kCPU, 3))));
  EXPECT_FALSE(drawn(make_generator(at::kCPU, 3)).equal(drawn(make_generator(at::kCPU, 4))));
}

TEST(Generator, IsNotTheProcesssDefault) {
  at::Generator own = make_generator(at::kCPU, 3);
  const at::Tensor first = drawn(own);
  at::empty({8}).uniform_(0, 1);
  own.set_current_seed(3);
  EXPECT_TRUE(drawn(own).equal(first));
}

}  // namespace
}  // namespace shoal
