#include "aten/widen.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace shoal::aten {
namespace {

using at::Tensor;

void expect_widened(const Tensor& given) {
  const Tensor wide = widened(given);
  EXPECT_EQ(wide.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(wide, given.to(at::kFloat))) << given.sizes() << given.strides();
  if (given.is_non_overlapping_and_dense()) {
    EXPECT_EQ(wide.strides(), given.strides());
  }
}

TEST(Widen, TakesEveryOrderOfMemory) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const int64_t rows : {1, 3, 64}) {
      for (const int64_t columns : {1, 7, 700}) {
        const Tensor matrix = at::randn({rows, columns}).to(dtype);
        expect_widened(matrix);
        expect_widened(matrix.t());
        expect_widened(at::randn({rows, columns + 5}).to(dtype).narrow(1, 2, columns));      // rows with gaps
        expect_widened(at::randn({columns + 5, rows}).to(dtype).narrow(0, 2, columns).t());  // columns side by side
        expect_widened(at::randn({rows, 2 * columns}).to(dtype).slice(1, 0, 2 * columns, 2));
        expect_widened(at::randn({columns}).to(dtype).expand({rows, columns}));  // one row again and again
        expect_widened(at::randn({1}).to(dtype).expand({rows, columns}));
      }
    }
    expect_widened(at::randn({2, 3, 4, 5}).to(dtype).transpose(1, 2));
    expect_widened(at::randn({2, 3, 4}).to(dtype).narrow(2, 1, 2));
    expect_widened(at::empty({0, 4}, dtype));
  }
}

TEST(Widen, RoundsToNearestAndTiesToEven) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const Tensor wide =
        at::randn({5, 301}).mul(at::logspace(-9, 5, 301));  // from below fp16's smallest to above its largest
    for (const Tensor& one : {wide, wide.t(), wide.slice(1, 0, 301, 3)}) {
      const Tensor narrow = rounded(one, dtype);
      EXPECT_EQ(narrow.scalar_type(), dtype);
      EXPECT_TRUE(at::equal(narrow, one.to(dtype)));
    }
    // Halfway between 1 and the next: back to 1, which is even; and up from there.
    const float step = dtype == at::kHalf ? 0x1p-10f : 0x1p-7f;
    const Tensor ties = rounded(at::tensor({1 + step / 2, 1 + 3 * step / 2}), dtype).to(at::kFloat);
    EXPECT_TRUE(at::equal(ties, at::tensor({1.0f, 1 + 2 * step})));
  }
}

TEST(Widen, LeavesWhatIsMissingOrOfAnotherDtype) {
  EXPECT_FALSE(widened(std::optional<Tensor>()).has_value());
  const std::optional<Tensor> mask = at::ones({3}, at::kBool);
  EXPECT_EQ(widened(mask)->scalar_type(), at::kBool);
  EXPECT_EQ(widened(std::optional(at::ones({3}, at::kHalf)))->scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace shoal::aten
