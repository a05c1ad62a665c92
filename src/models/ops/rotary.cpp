// See rotary.h.
#include "models/ops/rotary.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/check.h"
#include "models/ops/cuda/rope.h"
#include "models/ops/launch.h"

namespace shoal::models::ops {

namespace {

namespace ag = torch::autograd;
using at::Tensor;

// Heads of a row side by side, rows at one distance from each other: what the kernel reads as it is.
Tensor with_whole_rows(const Tensor& x) {
  const bool whole = x.stride(3) == 1 && x.stride(2) == x.size(3) && x.stride(0) == x.stride(1) * x.size(1);
  return whole ? x : x.contiguous();
}

cuda::RopeSide side(const Tensor& in, const Tensor& out) {
  return {in.const_data_ptr(), out.mutable_data_ptr(), in.size(2), in.stride(1), out.stride(1)};
}

ag::variable_list turn(const Tensor& given_q, const Tensor& given_k, const Tensor& cos, const Tensor& sin,
                       bool inverse) {
  const Tensor q = with_whole_rows(given_q);
  const Tensor k = with_whole_rows(given_k);
  const Tensor q_out = at::empty(q.sizes(), q.options());
  const Tensor k_out = at::empty(k.sizes(), k.options());
  cuda::Rope args;
  args.q = side(q, q_out);
  args.k = side(k, k_out);
  args.cos = cos.const_data_ptr<float>();
  args.sin = sin.const_data_ptr<float>();
  args.rows = q.size(0) * q.size(1);
  args.time = cos.size(0);
  args.dim = q.size(3);
  args.inverse = inverse;
  args.dtype = dtype_of(q);
  cuda::rope(args, stream_of(q));
  return {q_out, k_out};
}

struct FusedRotary final : ag::Function<FusedRotary> {
  static ag::variable_list forward(ag::AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& cos,
                                   const Tensor& sin) {
    ctx->save_for_backward({cos, sin});
    return turn(q, k, cos, sin, false);
  }

  // A rotation's gradient is turned back. Both gradients are there: undefined ones come as zeros.
  static ag::variable_list backward(ag::AutogradContext* ctx, const ag::variable_list& grads) {
    const ag::variable_list saved = ctx->get_saved_variables();
    const ag::variable_list both = turn(grads[0], grads[1], saved[0], saved[1], true);
    return {both[0], both[1], Tensor(), Tensor()};
  }
};

// x [batch, heads, time, dim].
Tensor rotate_one(const Tensor& x, const RotaryTable& table) {
  const int64_t half = x.size(-1) / 2;
  // [time, half], or [batch, 1, time, half] for rows with positions of their own.
  const bool by_row = table.cos.size(0) != x.size(2);
  const auto angles = [&](const Tensor& t) { return by_row ? t.view({x.size(0), 1, x.size(2), half}) : t; };
  const Tensor cos = angles(table.cos), sin = angles(table.sin);
  const Tensor first = x.narrow(-1, 0, half);
  const Tensor second = x.narrow(-1, half, half);
  const Tensor turned = at::cat({first.mul(cos).sub(second.mul(sin)), second.mul(cos).add(first.mul(sin))}, -1);
  return turned.to(x.scalar_type());
}

}  // namespace

Rotated rotate(const Tensor& q, const Tensor& k, const RotaryTable& table) {
  const int64_t turned = 2 * table.cos.size(1), dim = q.size(3);
  if (turned < dim) {
    const Rotated part = rotate(q.narrow(3, 0, turned), k.narrow(3, 0, turned), table);
    const auto with_rest = [&](const Tensor& first, const Tensor& whole) {
      return at::cat({first, whole.narrow(3, turned, dim - turned).transpose(1, 2)}, -1);
    };
    return {with_rest(part.q, q), with_rest(part.k, k)};
  }
  if (runs_fused({q, k})) {
    SHOAL_CHECK(table.cos.scalar_type() == at::kFloat && table.cos.is_contiguous() && table.sin.is_contiguous());
    SHOAL_CHECK(table.cos.size(0) == q.size(1) || table.cos.size(0) == q.size(0) * q.size(1));
    const ag::variable_list both = FusedRotary::apply(q, k, table.cos, table.sin);
    return {both[0].transpose(1, 2), both[1].transpose(1, 2)};
  }
  return {rotate_one(q.transpose(1, 2), table), rotate_one(k.transpose(1, 2), table)};
}

RotaryTable at_positions(const RotaryTable& table, const Tensor& positions) {
  const Tensor flat = positions.flatten();
  return {table.cos.index_select(0, flat), table.sin.index_select(0, flat)};
}

at::ScalarType rotary_table_dtype(const Tensor& x) { return runs_fused({x}) ? at::kFloat : x.scalar_type(); }

}  // namespace shoal::models::ops
