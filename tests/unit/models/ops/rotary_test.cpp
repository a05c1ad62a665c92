#include "models/ops/rotary.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cmath>

#include "models/dense/rope.h"
#include "unit/models/ops/same.h"

namespace shoal::models::ops {

using testing::normal_tensor;
using testing::results_and_grads;
using testing::Tensors;

TEST(Rotate, KeepsLengthsAndMakesProductsDependOnDistanceOnly) {
  const int64_t time = 6, dim = 8;
  const RotaryTable table = make_rope_table(rope_frequencies({}, dim), time, at::kFloat);
  const at::Tensor x = at::arange(dim, at::kFloat).sin().expand({1, time, 1, dim});
  const at::Tensor y = at::arange(dim, at::kFloat).cos().expand({1, time, 1, dim});
  const Rotated turned = rotate(x, y, table);
  const at::Tensor a = turned.q[0][0];
  const at::Tensor b = turned.k[0][0];
  const auto dot = [&](int64_t i, int64_t j) { return a[i].dot(b[j]).item<double>(); };
  EXPECT_NEAR(a[5].norm().item<double>(), x[0][5][0].norm().item<double>(), 1e-5);
  EXPECT_NEAR(dot(1, 3), dot(3, 5), 1e-5);
  EXPECT_GT(std::abs(dot(1, 3) - dot(1, 4)), 1e-3);
  EXPECT_TRUE(a[0].equal(x[0][0][0]));  // position 0 does not turn
}

TEST(Rotate, TurnsDimensionIWithIPlusHalf) {
  const RotaryTable table = make_rope_table({1.0f, 0.0f}, 2, at::kFloat);
  const at::Tensor x = at::tensor({1.0f, 2.0f, 0.0f, 3.0f}).expand({1, 2, 1, 4});
  const at::Tensor turned = rotate(x, x, table).q[0][0][1];
  EXPECT_NEAR(turned[0].item<double>(), std::cos(1.0), 1e-6);
  EXPECT_NEAR(turned[2].item<double>(), std::sin(1.0), 1e-6);
  EXPECT_EQ(turned[1].item<float>(), 2.0f);
  EXPECT_EQ(turned[3].item<float>(), 3.0f);
}

TEST(Rotate, DimensionsBehindTheTablesStay) {
  const RotaryTable table = make_rope_table(rope_frequencies({}, 4), 3, at::kFloat);
  const at::Tensor q = normal_tensor({2, 3, 6, 10}, 1), k = normal_tensor({2, 3, 2, 10}, 2);
  const Rotated part = rotate(q, k, table), whole = rotate(q.narrow(3, 0, 4), k.narrow(3, 0, 4), table);
  EXPECT_TRUE(part.q.narrow(3, 0, 4).equal(whole.q));
  EXPECT_TRUE(part.k.narrow(3, 0, 4).equal(whole.k));
  EXPECT_TRUE(part.q.narrow(3, 4, 6).equal(q.narrow(3, 4, 6).transpose(1, 2)));
  EXPECT_TRUE(part.k.narrow(3, 4, 6).equal(k.narrow(3, 4, 6).transpose(1, 2)));
}

TEST(Rotate, RowsTurnByPositionsOfTheirOwn) {
  const RotaryTable table = make_rope_table(rope_frequencies({}, 4), 5, at::kFloat);
  const at::Tensor q = normal_tensor({2, 3, 6, 4}, 1), k = normal_tensor({2, 3, 2, 4}, 2);
  const std::vector<std::vector<int64_t>> positions = {{0, 1, 0}, {3, 4, 2}};
  const at::Tensor flat = at::tensor(std::vector<int64_t>{0, 1, 0, 3, 4, 2}).view({2, 3});
  const Rotated turned = rotate(q, k, at_positions(table, flat));
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t at = positions[static_cast<size_t>(row)][static_cast<size_t>(i)];
      const auto here = [&](const at::Tensor& x) { return x.slice(0, row, row + 1).narrow(1, i, 1); };
      const Rotated alone = rotate(here(q), here(k), {table.cos.narrow(0, at, 1), table.sin.narrow(0, at, 1)});
      EXPECT_TRUE(turned.q.slice(0, row, row + 1).narrow(2, i, 1).equal(alone.q)) << row << " " << i;
      EXPECT_TRUE(turned.k.slice(0, row, row + 1).narrow(2, i, 1).equal(alone.k)) << row << " " << i;
    }
  }
}

TEST(Rotate, MovesHeadsBeforeTime) {
  const RotaryTable table = make_rope_table(rope_frequencies({}, 4), 3, at::kFloat);
  const Rotated turned = rotate(normal_tensor({2, 3, 6, 4}, 1), normal_tensor({2, 3, 2, 4}, 2), table);
  EXPECT_EQ(turned.q.sizes().vec(), (std::vector<int64_t>{2, 6, 3, 4}));
  EXPECT_EQ(turned.k.sizes().vec(), (std::vector<int64_t>{2, 2, 3, 4}));
}

TEST(Rotate, GradientsAreTurnedBack) {
  const RotaryTable table = make_rope_table(rope_frequencies({}, 4), 3, at::kFloat);
  const Tensors all = results_and_grads({normal_tensor({2, 3, 2, 4}, 1), normal_tensor({2, 3, 1, 4}, 2)},
                                        [&](const Tensors& t) -> Tensors {
                                          const Rotated turned = rotate(t[0], t[1], table);
                                          return {turned.q.transpose(1, 2), turned.k.transpose(1, 2)};
                                        });
  // Turning the gradient forward again gives what came in.
  const Rotated again = rotate(all[2], all[3], table);
  const at::Tensor came_in = at::arange(all[0].numel(), at::kDouble).sin().reshape(all[0].sizes()).to(at::kFloat);
  EXPECT_LT(again.q.transpose(1, 2).sub(came_in).abs().max().item<double>(), 1e-6);
}

TEST(Rotate, ATableInFp32TurnsNarrowHeadsInFp32AndRoundsOnce) {
  const RotaryTable table = make_rope_table(rope_frequencies({}, 4), 3, at::kFloat);
  const at::Tensor q = normal_tensor({2, 3, 2, 8}, 1, at::kBFloat16), k = normal_tensor({2, 3, 1, 8}, 2, at::kBFloat16);
  const Rotated narrow = rotate(q, k, table), wide = rotate(q.to(at::kFloat), k.to(at::kFloat), table);
  EXPECT_EQ(narrow.q.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(narrow.q.equal(wide.q.to(at::kBFloat16)));
  EXPECT_TRUE(narrow.k.equal(wide.k.to(at::kBFloat16)));
}

TEST(RotaryTableDtype, IsThatOfXOnTheCpu) {
  EXPECT_EQ(rotary_table_dtype(at::empty({1}, at::kBFloat16)), at::kBFloat16);
}

}  // namespace shoal::models::ops
