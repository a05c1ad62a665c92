// See matrix_model.h.
#include "training/matrix_model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "training/own_linear.h"

namespace shoal::testing {

MatrixModel::MatrixModel(uint64_t seed) {
  at::Generator random = at::detail::createCPUGenerator(seed);
  const auto leaf = [&](std::vector<int64_t> shape, double width, double mean = 0) {
    at::Tensor t = at::empty(shape).normal_(mean, width, random);
    return t.set_requires_grad(true);
  };
  wte = leaf({kVocab, kWidth}, 0.5);
  w1 = leaf({33, kWidth}, 0.2);
  b1 = leaf({33}, 0.1);
  w2 = leaf({kWidth, 33}, 0.2);
  shift = leaf({kWidth}, 0.1).set_requires_grad(false);
  scale = leaf({1}, 0.01, 1.0);
  w = leaf({kWidth, kWidth}, 0.2);
  gain = leaf({kWidth}, 0.01, 1.0);
  none = leaf({0, 3}, 1.0);
  sometimes = leaf({kWidth, kWidth}, 0.1);
  bias = leaf({kVocab}, 0.1);
}

std::vector<Unit> MatrixModel::units() const {
  return {
      {"embed", {{"wte", wte}}},
      {"twice",
       {{"twice.w1", w1}, {"twice.b1", b1, 1}, {"twice.w2", w2}, {"twice.shift", shift}, {"twice.scale", scale, 1}}},
      {"drop", {{"drop.w", w}, {"drop.gain", gain, 1}, {"drop.none", none}}},
      {"sometimes", {{"sometimes.w", sometimes}}},
      {"head", {{"head.bias", bias, 1}, {"head.tied", wte}}}};
}

std::vector<std::string> MatrixModel::names() {
  return {"wte",    "twice.w1",  "twice.b1",  "twice.w2",    "twice.shift", "twice.scale",
          "drop.w", "drop.gain", "drop.none", "sometimes.w", "head.bias"};
}

std::vector<at::Tensor> MatrixModel::tensors() const {
  return {wte, w1, b1, w2, shift, scale, w, gain, none, sometimes, bias};
}

at::Tensor MatrixModel::twice(const at::Tensor& x) const {
  const at::Tensor h = at::gelu(at::linear(x, w1, b1));
  return x + own_linear(h, w2) * scale + shift;
}

at::Tensor MatrixModel::drop(const at::Tensor& x, double probability, at::Generator& random) const {
  at::Tensor y = own_linear(at::layer_norm(x, {kWidth}, gain), w);
  if (probability > 0) {
    const at::Tensor keep =
        at::empty(y.sizes(), y.options().dtype(at::kFloat)).bernoulli_(1 - probability, random).to(y.scalar_type());
    y = y * keep / (1 - probability);
  }
  return x + y + none.sum();
}

at::Tensor MatrixModel::head(const at::Tensor& x) const { return at::linear(x, wte, bias); }

Batch batch_of(int64_t step, int64_t micro_step, int rank, int64_t samples, int64_t time) {
  at::Generator random =
      at::detail::createCPUGenerator(static_cast<uint64_t>(1000 + step * 97 + micro_step * 13 + rank));
  return {at::empty({samples, time}, at::kLong).random_(0, kVocab, random),
          at::empty({samples * time}, at::kLong).random_(0, kVocab, random)};
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels) {
  return at::cross_entropy_loss(logits.to(at::kFloat).reshape({-1, kVocab}), labels);
}

at::Tensor forward(Engine& engine, const MatrixModel& model, const Batch& batch, const ForwardOptions& options) {
  using Step = std::function<at::Tensor(const at::Tensor&)>;
  const auto unit = [&](int index, const at::Tensor& x, const Step& step) {
    if (!options.recompute) return engine.run(index, x, step);
    // The region is repeated in backward, after this frame is gone: it owns what it needs.
    return engine.recompute(x, [&engine, index, step](const at::Tensor& t) { return engine.run(index, t, step); });
  };
  at::Tensor x = engine.run(0, batch.ids.to(engine.device()),
                            [&](const at::Tensor& ids) { return at::embedding(model.wte, ids); });
  x = unit(1, x, [&model](const at::Tensor& t) { return model.twice(t); });
  x = unit(2, x, [&model, &engine, p = options.dropout](const at::Tensor& t) {
    return model.drop(t, p, engine.generator());
  });
  if (options.use_sometimes) {
    x = unit(3, x, [&model](const at::Tensor& t) { return t + at::linear(t, model.sometimes); });
  }
  x = unit(1, x, [&model](const at::Tensor& t) { return model.twice(t); });
  const at::Tensor logits = engine.run(4, x, [&model](const at::Tensor& t) { return model.head(t); });
  return cross_entropy(logits, batch.labels.to(engine.device()));
}

}  // namespace shoal::testing
