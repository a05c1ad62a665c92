// See blueprint.h.
#include "engine/blueprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>

#include "base/text.h"
#include "plan/from_config.h"
#include "shard/param_slot.h"
#include "shoal/error.h"

namespace shoal {

namespace {

DType stored_dtype(const Parameter& param, const Config& config) {
  const DType own = to_dtype(param.tensor.scalar_type(), param.name);
  if (param.keep_dtype) return own;
  switch (config.precision) {
    case Precision::fp32: return own;
    case Precision::bf16: return DType::bf16;
    case Precision::fp16: return DType::f16;
  }
  return own;
}

void check_param(const Parameter& param, size_t group_count) {
  const std::string place = "parameter " + param.name;
  if (!param.tensor.defined()) throw Error(place, "is not a tensor. Pass the model's own parameter.");
  if (!param.tensor.is_leaf())
    throw Error(place, "is not a leaf: it was computed from others. Pass the model's own parameter.");
  if (!param.tensor.device().is_cpu() && !param.tensor.device().is_cuda()) {
    throw Error(place,
                fmt::format("is on {}. Build the model on the CPU or on a CUDA GPU.", param.tensor.device().str()));
  }
  if (param.group < 0 || static_cast<size_t>(param.group) >= group_count) {
    throw Error(place, fmt::format("names parameter group {}, but there are {}. Add it to EngineOptions::groups.",
                                   param.group, group_count));
  }
}

// Placeholders and parameters that an earlier engine left released have none.
bool has_memory(const Parameter& param) {
  return param.tensor.numel() > 0 && !param.source && find_shard_record(param.tensor) == nullptr;
}

// Which bytes belong to which parameter. Views of one buffer may lie side by side, as those of a flattened RNN do.
class MemoryOwners {
 public:
  // The name of a parameter that has some of these bytes, or null: then they are this one's.
  const std::string* take(const Parameter& param) {
    int64_t last = 0;
    for (int64_t dim = 0; dim < param.tensor.dim(); ++dim) {
      last += (param.tensor.size(dim) - 1) * param.tensor.stride(dim);
    }
    const auto begin = reinterpret_cast<uintptr_t>(param.tensor.const_data_ptr());
    const uintptr_t end = begin + static_cast<size_t>(last + 1) * param.tensor.element_size();
    auto next = owners_.lower_bound(begin);
    if (next != owners_.end() && next->first < end) return &next->second.name;
    if (next != owners_.begin() && (--next)->second.end > begin) return &next->second.name;
    owners_.emplace(begin, Owner{end, param.name});
    return nullptr;
  }

 private:
  struct Owner {
    uintptr_t end = 0;
    std::string name;
  };
  std::map<uintptr_t, Owner> owners_;  // by the first byte
};

// What the config does not give, in full precision.
std::string text_of(const std::vector<ParamGroup>& groups) {
  std::string text;
  for (const ParamGroup& group : groups) {
    text += group.lr ? fmt::format("lr {} ", *group.lr) : "lr - ";
    text += group.weight_decay ? fmt::format("decay {}\n", *group.weight_decay) : "decay -\n";
  }
  return text;
}

}  // namespace

Blueprint make_blueprint(const std::vector<Unit>& units, const Config& config, size_t group_count) {
  Blueprint blueprint;
  std::unordered_map<const at::TensorImpl*, ParamAddress> owners;
  MemoryOwners memory_owners;
  std::set<std::string> unit_names;
  for (const Unit& unit : units) {
    const int unit_index = static_cast<int>(blueprint.specs.size());
    if (!unit_names.insert(unit.name).second) {
      throw Error("unit " + unit.name, "is declared twice. Give every unit a name of its own.");
    }
    UnitSpec spec;
    spec.name = unit.name;
    std::vector<at::Tensor> tensors;
    std::vector<std::shared_ptr<const ValueSource>> sources;
    for (const Parameter& param : unit.params) {
      check_param(param, group_count);
      const auto owner = owners.find(param.tensor.unsafeGetTensorImpl());
      ParamAddress address{unit_index, static_cast<int>(tensors.size())};
      if (owner != owners.end()) {
        address = owner->second;
        if (address.unit != unit_index &&
            std::find(spec.borrows.begin(), spec.borrows.end(), address.unit) == spec.borrows.end()) {
          spec.borrows.push_back(address.unit);
        }
      } else {
        if (has_memory(param)) {
          if (const std::string* other = memory_owners.take(param)) {
            throw Error("parameter " + param.name,
                        fmt::format("shares its memory with {} but is another tensor. Tie weights by using one tensor "
                                    "in both places.",
                                    *other));
          }
        }
        owners.emplace(param.tensor.unsafeGetTensorImpl(), address);
        ParamSpec param_spec;
        param_spec.name = param.name;
        param_spec.shape = param.tensor.sizes().vec();
        param_spec.dtype = stored_dtype(param, config);
        param_spec.trainable = param.tensor.requires_grad();
        param_spec.group = param.group;
        spec.params.push_back(std::move(param_spec));
        tensors.push_back(param.tensor);
        sources.push_back(param.source);
      }
      if (!blueprint.by_name.emplace(param.name, address).second) {
        throw Error("parameter " + param.name, "is declared twice. Give every parameter a name of its own.");
      }
    }
    blueprint.specs.push_back(std::move(spec));
    blueprint.tensors.push_back(std::move(tensors));
    blueprint.sources.push_back(std::move(sources));
  }
  if (units.empty()) throw Error("engine", "the model has no units. Pass at least one.");
  return blueprint;
}

ModelLayout layout_of(const std::vector<Unit>& units, const Config& config, int world, size_t group_count) {
  return lay_out(make_blueprint(units, config, group_count).specs, layout_options(config, world));
}

void check_agreement(const Blueprint& blueprint, const Config& config, const std::vector<ParamGroup>& groups,
                     Group& channel) {
  Config agreed = config;
  // Each host has disks of its own.
  agreed.zero.offload_optimizer.nvme_path.clear();
  agreed.zero.offload_param.nvme_path.clear();
  agreed.monitor = {};  // rank 0 alone writes there, and the name of a job may hold the time
  const std::array<uint64_t, 3> mine = {hash_text(to_text(blueprint.specs)), hash_text(agreed.to_json()),
                                        hash_text(text_of(groups))};
  constexpr std::array<std::string_view, 3> kWhat = {"another model", "another config", "other parameter groups"};
  std::vector<uint64_t> all(mine.size() * static_cast<size_t>(channel.size()));
  channel
      .all_gather({.subject = {"compare models and configs", "all units"},
                   .shard = mine.data(),
                   .whole = all.data(),
                   .shard_nbytes = sizeof(mine),
                   .keep = nullptr})
      .wait();
  std::vector<std::string> differences;
  for (int rank = 1; rank < channel.size(); ++rank) {
    for (size_t part = 0; part < mine.size(); ++part) {
      if (all[static_cast<size_t>(rank) * mine.size() + part] == all[part]) continue;
      differences.push_back(fmt::format("rank {} has {} than rank 0", rank, kWhat[part]));
    }
  }
  if (differences.empty()) return;
  throw Error("engine", fmt::format("the ranks disagree: {}. Start every rank with the same model (names, shapes, "
                                    "dtypes, order) and the same config file.",
                                    join(differences, "; ")));
}

}  // namespace shoal
