#include "models/dense/rope.h"
#include "cuda/tensors.h"
#include "models/ops/rotary.h"

namespace shoal {

using models::make_rope_table;
using models::rope_frequencies;
using models::ops::RotaryTable;
using models::ops::rotate;
using models::ops::Rotated;

namespace {

using FusedRope = OnGpuTensors;

RotaryTable table_on_gpu(int64_t time, int64_t dim) {
  const RotaryTable table = make_rope_table(rope_frequencies({}, dim), time, at::kFloat);
  return {table.cos.to(at::kCUDA), table.sin.to(at::kCUDA)};
}

// x [batch, time, heads, dim] -> [batch, heads, time, dim], in fp64.
at::Tensor plain(const at::Tensor& x, const RotaryTable& table) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor cos = table.cos.to(at::kDouble), sin = table.sin.to(at::kDouble);
  const at::Tensor t = x.transpose(1, 2), a = t.narrow(-1, 0, half), b = t.narrow(-1, half, half);
  return at::cat({a.mul(cos).sub(b.mul(sin)), b.mul(cos).add(a.mul(sin))}, -1);
}

struct Shape {
  int64_t batch, time, heads, kv_heads, dim;
};

}  // namespace

TEST_F(FusedRope, IsNearFp64ForEveryShape) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const Shape& s : {Shape{1, 1, 1, 1, 2}, Shape{2, 7, 4, 2, 64}, Shape{3, 33, 5, 5, 6}, Shape{1, 5, 3, 1, 24},
                           Shape{2, 16, 32, 8, 128}, Shape{2, 130, 32, 32, 64}, Shape{1, 3, 7, 7, 80},
                           Shape{2, 3, 32, 32, 100}, Shape{4, 300, 32, 8, 64}}) {
      const RotaryTable table = table_on_gpu(s.time, s.dim);
      const auto fused = [&](const Tensors& t) -> Tensors {
        const Rotated turned = rotate(t[0], t[1], table);
        return {turned.q, turned.k};
      };
      expect_near_reference(
          {on_gpu({s.batch, s.time, s.heads, s.dim}, dtype), on_gpu({s.batch, s.time, s.kv_heads, s.dim}, dtype)},
          fused,
          [&](const Tensors& t) -> Tensors {
            return {plain(t[0], table), plain(t[1], table)};
          },
          tolerance_of(dtype), words_of("rope", dtype, {s.batch, s.time, s.heads, s.kv_heads, s.dim}));
    }
  }
}

TEST_F(FusedRope, ReadsSlicesOfOneProjectionAsTheyLie) {
  const int64_t dim = 64;
  const RotaryTable table = table_on_gpu(9, dim);
  for (const int64_t v_width : {64, 3}) {  // rows that begin at multiples of 16 bytes, and that do not
    expect_near_reference(
        {on_gpu({2, 9, 4 * dim + 2 * dim + v_width}, at::kBFloat16)},
        [&](const Tensors& t) -> Tensors {
          const at::Tensor q = t[0].narrow(-1, 0, 4 * dim).unflatten(-1, {4, dim});
          const at::Tensor k = t[0].narrow(-1, 4 * dim, 2 * dim).unflatten(-1, {2, dim});
          const Rotated turned = rotate(q, k, table);
          return {turned.q, turned.k};
        },
        [&](const Tensors& t) -> Tensors {
          const at::Tensor q = t[0].narrow(-1, 0, 4 * dim).unflatten(-1, {4, dim});
          const at::Tensor k = t[0].narrow(-1, 4 * dim, 2 * dim).unflatten(-1, {2, dim});
          return {plain(q, table), plain(k, table)};
        },
        tolerance_of(at::kBFloat16), "slices");
  }
}

TEST_F(FusedRope, LeavesHeadsSideBySideForAttention) {
  const Rotated turned =
      rotate(on_gpu({2, 9, 4, 64}, at::kBFloat16), on_gpu({2, 9, 2, 64}, at::kBFloat16), table_on_gpu(9, 64));
  EXPECT_TRUE(turned.q.transpose(1, 2).is_contiguous());
  EXPECT_TRUE(turned.k.transpose(1, 2).is_contiguous());
}

}  // namespace shoal
