// See experts.h.
#include "models/ops/experts.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/diff.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/ops/activation.h"
#include "models/ops/cuda/activation.h"
#include "models/ops/launch.h"

namespace shoal::models::ops {

namespace {

namespace ag = torch::autograd;
using at::Tensor;

Tensor as_rows(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// [pairs, width] -> [tokens, k, width].
Tensor by_token(const Tensor& values, const Routes& routes) {
  return values.index_select(0, routes.places).view({-1, routes.per_token(), values.size(1)});
}

struct GateUp {
  Tensor gate, up;  // [pairs, ffn]
};

// Of one product; on a GPU copies, since the kernels want matrices that lie as one.
GateUp halves(const Tensor& both) {
  const int64_t ffn = both.size(1) / 2;
  const GateUp parts = {both.narrow(1, 0, ffn), both.narrow(1, ffn, ffn)};
  return both.is_cuda() ? GateUp{parts.gate.contiguous(), parts.up.contiguous()} : parts;
}

// The gradients of gate and up side by side, and the product once more.
struct SwigluGradients {
  Tensor both;     // [pairs, 2 ffn]
  Tensor product;  // [pairs, ffn]
};
SwigluGradients swiglu_gradients(const GateUp& of, Tensor dproduct) {
  const int64_t ffn = of.gate.size(1);
  if (runs_fused({of.gate, of.up, dproduct})) {
    const Tensor dgate = at::empty_like(of.gate), dup = at::empty_like(of.up), product = at::empty_like(of.gate);
    cuda::SwigluBackward args;
    args.gate = of.gate.const_data_ptr();
    args.up = of.up.const_data_ptr();
    args.dy = dproduct.const_data_ptr();
    args.dgate = dgate.mutable_data_ptr();
    args.dup = dup.mutable_data_ptr();
    args.y = product.mutable_data_ptr();
    args.numel = of.gate.numel();
    args.dtype = dtype_of(of.gate);
    cuda::swiglu_backward(args, stream_of(of.gate));
    dproduct = Tensor();
    return {at::cat({dgate, dup}, 1), product};
  }
  const Tensor both = at::empty({of.gate.size(0), 2 * ffn}, of.gate.options());
  Tensor dgate = both.narrow(1, 0, ffn), dup = both.narrow(1, ffn, ffn);
  Tensor activated = at::silu(of.gate);
  at::mul_out(dup, dproduct, activated);
  const Tensor product = activated.mul_(of.up);
  at::silu_backward_out(dgate, dproduct.mul_(of.up), of.gate);
  return {both, product};
}

struct Experts final : ag::Function<Experts> {
  // origin.op none: x is kept, if its product's matrix is trained.
  static Tensor forward(ag::AutogradContext* ctx, const Tensor& given, const Tensor& weights, const Tensor& gate_up,
                        const Tensor& down, const Routes& routes, int64_t by, const Origin& origin) {
    const Tensor x = as_rows(given);
    const Groups groups = make_groups(routes.ends, static_cast<GroupedBy>(by));
    const GateUp made = halves(grouped_linear(x.index_select(0, routes.tokens()), gate_up, groups));
    ag::variable_list kept = {weights, gate_up, down, routes.pairs, routes.places, groups.ends, made.gate, made.up};
    if (origin.op == Origin::Op::none) kept.push_back(gate_up.requires_grad() ? x : Tensor());
    kept.insert(kept.end(), origin.from.begin(), origin.from.end());
    ctx->save_for_backward(kept);
    ctx->saved_data["op"] = static_cast<int64_t>(origin.op);
    ctx->saved_data["eps"] = origin.eps;
    ctx->saved_data["by"] = by;
    ctx->saved_data["sizes"] = given.sizes().vec();
    const Tensor results = by_token(grouped_linear(swiglu(made.gate, made.up), down, groups), routes);
    return results.mul(weights.unsqueeze(-1)).sum(1).view(given.sizes());
  }

  static ag::variable_list backward(ag::AutogradContext* ctx, const ag::variable_list& grads) {
    const ag::variable_list saved = ctx->get_saved_variables();
    const Tensor &weights = saved[0], &gate_up = saved[1], &down = saved[2];
    const Routes routes = {weights, saved[3], saved[4], saved[5]};
    const Groups groups = {saved[5], static_cast<GroupedBy>(ctx->saved_data["by"].toInt())};
    const GateUp made = {saved[6], saved[7]};
    const Tensor tokens = routes.tokens();
    Tensor dy = as_rows(grads[0]).index_select(0, tokens);
    const Tensor factors = weights.flatten().index_select(0, routes.pairs).unsqueeze(1);
    Tensor dresult = grouped_input_gradient(dy, down, groups);  // of h, before the weight
    SwigluGradients behind = swiglu_gradients(made, dresult.mul(factors));
    ag::variable_list results(7);
    if (ctx->needs_input_grad(1)) {
      const Tensor dweights = dresult.mul(behind.product).sum(1);
      results[1] = dweights.index_select(0, routes.places).view(weights.sizes());
    }
    dresult = Tensor();  // given back, as those below are, before more is made
    if (ctx->needs_input_grad(3)) {
      results[3] = grouped_weight_gradient(dy, behind.product.mul(factors), down, groups);
    }
    dy = behind.product = Tensor();
    if (ctx->needs_input_grad(2)) {
      const auto op = static_cast<Origin::Op>(ctx->saved_data["op"].toInt());
      const Tensor x =
          op == Origin::Op::none
              ? saved[8]
              : as_rows(make_again({op, {saved.begin() + 8, saved.end()}, ctx->saved_data["eps"].toDouble()}));
      results[2] = grouped_weight_gradient(behind.both, x.index_select(0, tokens), gate_up, groups);
    }
    if (ctx->needs_input_grad(0)) {
      const Tensor dx = by_token(grouped_input_gradient(behind.both, gate_up, groups), routes).sum(1);
      results[0] = dx.view(ctx->saved_data["sizes"].toIntVector());
    }
    return results;
  }
};

}  // namespace

Tensor Routes::tokens() const { return pairs.div(per_token(), "floor"); }

Tensor Routes::counts() const {
  const Tensor whole = ends.to(at::kLong);
  return at::diff(whole, 1, 0, at::zeros({1}, whole.options()));
}

Routes make_routes(const Tensor& chosen, const Tensor& weights, int64_t experts) {
  const auto [sorted, pairs] = at::sort(chosen.flatten(), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const Tensor places = at::empty_like(pairs);
  places.scatter_(0, pairs, at::arange(pairs.size(0), pairs.options()));
  const Tensor numbers = at::arange(experts, sorted.options());
  return {weights, pairs, places, at::searchsorted(sorted, numbers, /*out_int32=*/true, /*right=*/true)};
}

Tensor experts(const Operand& x, const Routes& routes, const ExpertWeights& weights, GroupedBy by) {
  return Experts::apply(x.value, routes.weights, weights.gate_up, weights.down, routes, static_cast<int64_t>(by),
                        x.origin);
}

Tensor experts(const Operand& x, const Routes& routes, const ExpertWeights& weights) {
  return experts(x, routes, weights, grouped_by(x.value, {weights.gate_up, weights.down}));
}

}  // namespace shoal::models::ops
