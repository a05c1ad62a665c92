// See parameter_list.h.
#include "models/parameter_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/text.h"
#include "checkpoint/safetensors_format.h"
#include "shoal/error.h"

namespace shoal::models {

namespace {

constexpr std::array<const char*, 4> kFloatingDtypes = {"F32", "BF16", "F16", "F64"};

bool is_floating(const std::string& dtype) {
  return std::find(kFloatingDtypes.begin(), kFloatingDtypes.end(), dtype) != kFloatingDtypes.end();
}

const SafeTensor& tensor_named(const SafetensorsReader& file, const std::string& name) {
  const std::vector<SafeTensor>& tensors = file.tensors();
  const auto found = std::lower_bound(tensors.begin(), tensors.end(), name,
                                      [](const SafeTensor& tensor, const std::string& n) { return tensor.name < n; });
  SHOAL_CHECK(found != tensors.end() && found->name == name, "{}", name);
  return *found;
}

}  // namespace

ParameterList::ParameterList(WeightsOrigin origin, FileNames names, const std::optional<LoraSpec>& lora)
    : origin_(std::move(origin)), names_(std::move(names)) {
  if (!lora) return;
  targets_.emplace(*lora);
  made_.emplace();
}

void ParameterList::begin_unit(const std::string& name) { units_.push_back({name, {}}); }

at::Tensor ParameterList::add(const std::string& name, const std::vector<int64_t>& shape, const Init& init) {
  Parameter param;
  param.name = name;
  if (!origin_.file) {
    param.source = make_initial_values(init, origin_.seed, name);
  } else if (const std::string in_file = name_in_file(name); in_file.empty()) {
    missing_.push_back(name);
  } else {
    param.source = file_values(in_file, shape);
  }
  return add(std::move(param), shape, /*trained=*/!targets_);
}

at::Tensor ParameterList::add_pieced(const std::string& name, const std::vector<int64_t>& shape, const Init& init,
                                     const std::function<std::vector<StoredPiece>()>& pieces) {
  if (!origin_.file || !name_in_file(name).empty()) return add(name, shape, init);
  Parameter param;
  param.name = name;
  param.source = pieced_values(pieces());
  return add(std::move(param), shape, /*trained=*/!targets_);
}

at::Tensor ParameterList::add(Parameter param, const std::vector<int64_t>& shape, bool trained) {
  param.tensor = make_placeholder(shape, DType::f32, trained);
  numel_ += numel_of(shape);
  units_.back().params.push_back(param);
  return param.tensor;
}

std::shared_ptr<const ValueSource> ParameterList::file_values(const std::string& in_file,
                                                              const std::vector<int64_t>& shape) {
  const SafeTensor& found = tensor_named(*origin_.file, in_file);
  if (found.shape != shape) {
    misfits_.push_back(
        fmt::format("{} is {}, and config.json asks for {}", in_file, format_shape(found.shape), format_shape(shape)));
  } else if (!is_floating(found.dtype)) {
    misfits_.push_back(fmt::format("{} is {}, not {}", in_file, found.dtype, fmt::join(kFloatingDtypes, ", ")));
  }
  used_.insert(in_file);
  return make_file_values(origin_.file, in_file);
}

std::shared_ptr<const ValueSource> ParameterList::pieced_values(const std::vector<StoredPiece>& pieces) {
  std::vector<ValuePart> parts;
  std::vector<std::string> missing;
  for (const StoredPiece& piece : pieces) {
    const std::string in_file = name_in_file(piece.name);
    if (in_file.empty()) {
      missing.push_back(piece.name);
    } else {
      parts.push_back({piece.begin, numel_of(piece.shape), file_values(in_file, piece.shape)});
    }
  }
  if (missing.empty()) return make_joined_values(std::move(parts));
  missing_.push_back(missing.size() == 1 ? missing[0]
                                         : fmt::format("{} and {} more of its kind", missing[0], missing.size() - 1));
  return nullptr;
}

Adapter ParameterList::adapt(const std::string& module, const AdaptedMatrix& matrix) {
  if (!targets_ || !targets_->has(module, matrix.makes_qv)) return {};
  const LoraSpec& spec = targets_->spec();
  Adapter adapter;
  // As PEFT begins: A by Kaiming's uniform rule with a = sqrt(5), B at 0, so that the model begins as its base.
  const double bound = 1 / std::sqrt(static_cast<double>(matrix.in));
  adapter.a = add_made(module + ".lora_A.weight", {spec.rank, matrix.in}, Init::uniform(bound));
  adapter.b = add_made(module + ".lora_B.weight", {matrix.out, spec.rank}, Init::constant(0));
  adapter.scale = spec.scale();
  adapter.dropout = spec.dropout;
  made_->modules.push_back(module);
  made_->numel += adapter.a.numel() + adapter.b.numel();
  made_->transposed = matrix.transposed;
  return adapter;
}

void ParameterList::refuse_adapter(const std::string& module) {
  if (targets_) targets_->refuse(module);
}

at::Tensor ParameterList::add_made(const std::string& name, const std::vector<int64_t>& shape, const Init& init) {
  Parameter param;
  param.name = name;
  param.source = make_initial_values(init, origin_.seed, name);
  return add(std::move(param), shape, /*trained=*/true);
}

void ParameterList::add_tied(const std::string& name, const at::Tensor& tensor) {
  if (origin_.file) used_.insert(name_in_file(name));
  for (const Unit& unit : units_) {
    for (const Parameter& param : unit.params) {
      if (!param.tensor.is_same(tensor)) continue;
      Parameter tied = param;
      tied.name = name;
      units_.back().params.push_back(std::move(tied));
      return;
    }
  }
  SHOAL_CHECK(false, "{} is tied to a tensor that is not in the list", name);
}

std::vector<Unit> ParameterList::finish(const std::string& model) {
  if (targets_) made_->spec = targets_->resolved(model);
  if (!origin_.file) return units_;
  std::vector<std::string> extra;
  for (const SafeTensor& tensor : origin_.file->tensors()) {
    if (!used_.contains(tensor.name) && !is_ignored(tensor.name)) extra.push_back(tensor.name);
  }
  if (missing_.empty() && extra.empty() && misfits_.empty()) return units_;
  std::string text = "the weights are not those of config.json.";
  if (!missing_.empty()) text += fmt::format(" Missing: {}.", join(missing_, ", "));
  if (!extra.empty()) text += fmt::format(" Not expected: {}.", join(extra, ", "));
  if (!misfits_.empty()) text += fmt::format(" Not fitting: {}.", join(misfits_, "; "));
  throw Error(fmt::format("model {}", origin_.path), text + " Use the files of one checkpoint.");
}

std::string ParameterList::name_in_file(const std::string& name) const {
  if (origin_.file->contains(name)) return name;
  if (name.starts_with(names_.base_prefix)) {
    const std::string bare = name.substr(names_.base_prefix.size());
    if (origin_.file->contains(bare)) return bare;
  }
  return "";
}

bool ParameterList::is_ignored(const std::string& name) const {
  return std::any_of(names_.ignored_suffixes.begin(), names_.ignored_suffixes.end(),
                     [&](const std::string& suffix) { return name.ends_with(suffix); });
}

}  // namespace shoal::models
