// See initial_values.h.
#include "engine/initial_values.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cstring>

#include "kernels/convert.h"
#include "shoal/engine.h"
#include "shoal/error.h"

namespace shoal {

namespace {

// Reads flats that an earlier engine left sharded; neighbours of one flat are gathered once.
class RecordReader {
 public:
  explicit RecordReader(Group& channel) : channel_(channel) {}

  // The parameter's bytes, in its flat's dtype. Valid until the next call.
  const std::byte* read(const ShardRecord& record, const std::string& name) {
    if (record.world != channel_.size()) {
      throw Error("parameter " + name,
                  fmt::format("was left sharded over {} ranks, and this group has {}. Use the same "
                              "number of ranks.",
                              record.world, channel_.size()));
    }
    const size_t element = nbytes_of(record.flat.dtype);
    if (record.shard != gathered_) {
      whole_.resize(static_cast<size_t>(record.flat.numel) * element);
      channel_
          .all_gather({.subject = {"adopt", name},
                       .shard = record.shard,
                       .whole = whole_.data(),
                       .shard_nbytes = static_cast<size_t>(record.flat.shard_numel) * element,
                       .keep = record.slab})
          .wait();
      gathered_ = record.shard;
    }
    return whole_.data() + static_cast<size_t>(record.piece.offset) * element;
  }

 private:
  Group& channel_;
  const std::byte* gathered_ = nullptr;
  std::vector<std::byte> whole_;
};

void read_param(const at::Tensor& tensor, const std::string& name, RecordReader& records, float* out) {
  if (tensor.numel() == 0) return;
  if (const ShardRecord* record = find_shard_record(tensor)) {
    kernels::convert(records.read(*record, name), record->flat.dtype, out, DType::f32, tensor.numel());
    return;
  }
  const at::Tensor dense = tensor.detach().contiguous();
  kernels::convert(dense.const_data_ptr(), to_dtype(dense.scalar_type(), name), out, DType::f32, dense.numel());
}

}  // namespace

void take_over(const Blueprint& blueprint, const ModelLayout& layout, bool broadcast, Weights& weights,
               Updater& updater, Group& channel) {
  RecordReader records(channel);
  for (int unit = 0; unit < static_cast<int>(layout.units.size()); ++unit) {
    const UnitLayout& unit_layout = layout.units[static_cast<size_t>(unit)];
    const UnitSpec& spec = blueprint.specs[static_cast<size_t>(unit)];
    const std::vector<at::Tensor>& tensors = blueprint.tensors[static_cast<size_t>(unit)];
    for (int flat = 0; flat < static_cast<int>(unit_layout.flats.size()); ++flat) {
      const FlatLayout& flat_layout = unit_layout.flats[static_cast<size_t>(flat)];
      std::vector<float> values(static_cast<size_t>(flat_layout.numel), 0.0f);
      for (const Piece& piece : flat_layout.pieces) {
        read_param(tensors[static_cast<size_t>(piece.param)], spec.params[static_cast<size_t>(piece.param)].name,
                   records, values.data() + piece.offset);
      }
      if (broadcast) {
        channel
            .broadcast({.subject = {"broadcast the initial weights", unit_layout.name},
                        .data = values.data(),
                        .nbytes = values.size() * sizeof(float),
                        .root = 0,
                        .keep = nullptr})
            .wait();
      }
      updater.set_values(unit, flat, values.data(), weights);
    }
    std::vector<ParamSlot> slots;
    for (size_t param = 0; param < tensors.size(); ++param) {
      slots.emplace_back(tensors[param], spec.params[param].name, spec.params[param].dtype);
    }
    weights.take_params(unit, std::move(slots));
  }
}

void make_whole(const std::vector<Unit>& units, Group& world) {
  const std::unique_ptr<Group> channel = world.channel("make whole");
  RecordReader records(*channel);
  for (const Unit& unit : units) {
    for (const Parameter& param : unit.params) {
      const ShardRecord* record = find_shard_record(param.tensor);
      if (record == nullptr) continue;
      const at::Tensor whole = at::empty(param.tensor.sizes(), param.tensor.options().requires_grad(false));
      if (whole.numel() > 0) std::memcpy(whole.mutable_data_ptr(), records.read(*record, param.name), whole.nbytes());
      at::Tensor(param.tensor).set_data(whole);
    }
  }
}

}  // namespace shoal
