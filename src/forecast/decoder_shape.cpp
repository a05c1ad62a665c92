// See decoder_shape.h.
#include "forecast/decoder_shape.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal::forecast {

double DecoderShape::attended(int64_t time) const {
  const auto all = static_cast<double>(time);
  if (windows.empty()) return all / 2;
  double sum = 0;
  for (const int64_t window : windows) {
    const auto within = static_cast<double>(window > 0 ? std::min(window, time) : time);
    sum += within - within * within / (2 * all);
  }
  return sum / static_cast<double>(windows.size());
}

double model_flops_a_token(const DecoderShape& shape, int64_t time) {
  const auto matrices = static_cast<double>(shape.all_blocks_numel() + shape.head_numel());
  const double attention = 4.0 * static_cast<double>(shape.layers * shape.q_width) * shape.attended(time);
  const auto adapters = static_cast<double>(shape.adapter_numel);
  return (shape.adapter_numel > 0 ? 4 : 6) * matrices + 6 * adapters + 3 * attention;
}

std::vector<UnitSpec> units_of(const DecoderShape& shape, DType dtype) {
  const auto param = [&](const std::string& name, std::vector<int64_t> sizes) {
    return ParamSpec{.name = name, .shape = std::move(sizes), .dtype = dtype};
  };
  std::vector<UnitSpec> units;
  units.push_back({.name = "embedding", .params = {param("embedding", {shape.vocab, shape.hidden})}, .borrows = {}});
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    UnitSpec unit{.name = fmt::format("block.{}", layer), .params = {}, .borrows = {}};
    const auto add = [&](const char* name, std::vector<int64_t> sizes) {
      unit.params.push_back(param(fmt::format("{}.{}", unit.name, name), std::move(sizes)));
    };
    add("attention_norm", {shape.hidden});
    add("q", {shape.q_width, shape.hidden});
    add("k", {shape.kv_width, shape.hidden});
    add("v", {shape.kv_width, shape.hidden});
    add("o", {shape.hidden, shape.q_width});
    add("ffn_norm", {shape.hidden});
    if (shape.gated) add("gate", {shape.ffn, shape.hidden});
    add("up", {shape.ffn, shape.hidden});
    add("down", {shape.hidden, shape.ffn});
    units.push_back(std::move(unit));
  }
  UnitSpec head{.name = "head", .params = {param("norm", {shape.hidden})}, .borrows = {}};
  if (shape.tied) {
    head.borrows = {0};
  } else {
    head.params.push_back(param("head", {shape.vocab, shape.hidden}));
  }
  units.push_back(std::move(head));
  return units;
}

}  // namespace shoal::forecast
