// See initial_values.h.
#include "engine/initial_values.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/headway.h"
#include "comm/group/full_group.h"
#include "kernels/convert.h"
#include "shard/compute_queue.h"
#include "shoal/engine.h"
#include "shoal/error.h"

namespace shoal {

namespace {

// Reads flats that an earlier engine left sharded; neighbours of one flat are gathered once. What lies in host memory
// travels there, what lies on a GPU between GPUs.
class RecordReader {
 public:
  RecordReader(Group& host, Group& device, Queue& queue) : host_(host), device_(device), queue_(queue) {}

  // The parameter's bytes in host memory, in its flat's dtype. Valid until the next call.
  const std::byte* read(const ShardRecord& record, const std::string& name) {
    if (record.world() != host_.size()) {
      throw Error("parameter " + name,
                  fmt::format("was left sharded over {} ranks, and this group has {}. Use the same "
                              "number of ranks.",
                              record.world(), host_.size()));
    }
    const size_t element = nbytes_of(record.flat.dtype);
    if (!gathered_ || !gathered_->is_of_flat_of(record)) {
      const size_t part_nbytes = static_cast<size_t>(record.part(host_.rank()).numel()) * element;
      std::vector<std::byte> by_rank(part_nbytes * static_cast<size_t>(host_.size()));
      AllGather gather{.subject = {"adopt", name},
                       .shard = record.fetch(),
                       .whole = by_rank.data(),
                       .shard_nbytes = part_nbytes,
                       .keep = record.home};
      if (record.on_device()) {
        const std::shared_ptr<Slab> gathered =
            queue_.allocate(by_rank.size(), std::make_shared<Ledger>(), MemoryKind::user_gather);
        gather.whole = gathered->data();
        device_.all_gather(std::move(gather)).wait();
        queue_.download(by_rank.data(), gathered->data(), by_rank.size());
      } else {
        host_.all_gather(std::move(gather)).wait();
      }
      whole_.resize(static_cast<size_t>(record.flat.numel) * element);
      put_in_order(by_rank.data(), record, whole_.data());
      gathered_ = record;
    }
    return whole_.data() + static_cast<size_t>(record.piece.offset) * element;
  }

 private:
  Group& host_;
  Group& device_;
  Queue& queue_;
  std::optional<ShardRecord> gathered_;
  std::vector<std::byte> whole_;
};

// Values are read and written in spans of at most this many elements where no rank needs a parameter whole.
constexpr int64_t kSpanNumel = int64_t{1} << 24;

void read_param(const at::Tensor& tensor, const ValueSource* source, const std::string& name, RecordReader& records,
                Queue& queue, float* out) {
  if (tensor.numel() == 0) return;
  if (source != nullptr) {
    source->read(0, tensor.numel(), out);
    return;
  }
  const auto take = [&](const std::byte* values, DType dtype) {
    queue.on_host(tensor.numel(), [&](int64_t begin, int64_t end) {
      kernels::convert(values + static_cast<size_t>(begin) * nbytes_of(dtype), dtype, out + begin, DType::f32,
                       end - begin);
    });
  };
  if (const ShardRecord* record = find_shard_record(tensor)) {
    take(records.read(*record, name), record->flat.dtype);
    return;
  }
  const at::Tensor dense = tensor.detach().to(at::kCPU).contiguous();
  take(static_cast<const std::byte*>(dense.const_data_ptr()), to_dtype(dense.scalar_type(), name));
}

// Fills a flat whose parameters may be anything: each rank brings the whole flat together, and rank 0's values count.
void fill_whole(const TakeOver& parts, int unit, int flat, bool broadcast, RecordReader& records) {
  const UnitLayout& unit_layout = parts.layout.units[static_cast<size_t>(unit)];
  const FlatLayout& flat_layout = unit_layout.flats[static_cast<size_t>(flat)];
  const UnitSpec& spec = parts.blueprint.specs[static_cast<size_t>(unit)];
  std::vector<float> values(static_cast<size_t>(flat_layout.numel), 0.0f);
  for (const Piece& piece : flat_layout.pieces) {
    const auto param = static_cast<size_t>(piece.param);
    read_param(parts.blueprint.tensors[static_cast<size_t>(unit)][param],
               parts.blueprint.sources[static_cast<size_t>(unit)][param].get(), spec.params[param].name, records,
               parts.queue, values.data() + piece.offset);
  }
  if (broadcast) {
    parts.channel.notes()
        .broadcast({.subject = {"broadcast the initial weights", unit_layout.name},
                    .data = values.data(),
                    .nbytes = values.size() * sizeof(float),
                    .root = 0,
                    .keep = nullptr})
        .wait();
  }
  parts.states.set_values(unit, flat, {0, flat_layout.numel}, values.data(), parts.weights);
}

// Fills a flat whose parameters all have sources: each rank reads what it keeps, and nothing travels.
void fill_from_sources(const TakeOver& parts, int unit, int flat) {
  const FlatLayout& layout = parts.layout.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)];
  const Cut held = parts.weights.cuts().weights(layout);
  std::vector<float> values;
  for (const ParamRun& run : runs_in(layout, held.begin, held.end)) {
    const ValueSource& source = *parts.blueprint.sources[static_cast<size_t>(unit)][static_cast<size_t>(run.param)];
    for (int64_t done = 0; done < run.numel; done += kSpanNumel) {
      const int64_t numel = std::min(kSpanNumel, run.numel - done);
      values.resize(static_cast<size_t>(numel));
      parts.queue.on_host(numel, [&](int64_t begin, int64_t end) {
        source.read(run.param_offset + done + begin, end - begin, values.data() + begin);
      });
      const int64_t at = run.flat_offset + done;
      parts.states.set_values(unit, flat, {at, at + numel}, values.data(), parts.weights);
    }
  }
}

// Where an engine left the parameters' shards; one engine's all lie in one place.
at::Device device_of_shards(const std::vector<Unit>& units) {
  for (const Unit& unit : units) {
    for (const Parameter& param : unit.params) {
      if (find_shard_record(param.tensor) != nullptr) return param.tensor.device();
    }
  }
  return at::kCPU;
}

bool all_have_sources(const Blueprint& blueprint, int unit, const FlatLayout& flat) {
  return std::all_of(flat.pieces.begin(), flat.pieces.end(), [&](const Piece& piece) {
    return blueprint.sources[static_cast<size_t>(unit)][static_cast<size_t>(piece.param)] != nullptr;
  });
}

}  // namespace

void take_over(const TakeOver& parts, bool broadcast) {
  RecordReader records(parts.channel.notes(), parts.channel.bytes(), parts.queue);
  const int units = static_cast<int>(parts.layout.units.size());
  Headway headway({.what = "initial weights", .things = "units", .total = units}, [&](const std::string& line) {
    if (parts.channel.notes().rank() == 0) fmt::print(stderr, "shoal: {}\n", line);
  });
  for (int unit = 0; unit < units; ++unit) {
    const UnitLayout& unit_layout = parts.layout.units[static_cast<size_t>(unit)];
    for (int flat = 0; flat < static_cast<int>(unit_layout.flats.size()); ++flat) {
      if (all_have_sources(parts.blueprint, unit, unit_layout.flats[static_cast<size_t>(flat)])) {
        fill_from_sources(parts, unit, flat);
      } else {
        fill_whole(parts, unit, flat, broadcast, records);
      }
    }
    const UnitSpec& spec = parts.blueprint.specs[static_cast<size_t>(unit)];
    const std::vector<at::Tensor>& tensors = parts.blueprint.tensors[static_cast<size_t>(unit)];
    std::vector<ParamSlot> slots;
    for (size_t param = 0; param < tensors.size(); ++param) {
      slots.emplace_back(tensors[param], spec.params[param].name, spec.params[param].dtype, parts.device);
    }
    parts.weights.take_params(unit, std::move(slots));
    headway.reached(unit + 1);
  }
}

void make_whole(const std::vector<Unit>& units, Group& world) {
  const at::Device device = device_of_shards(units);
  const std::unique_ptr<Queue> queue = make_compute_queue(device);
  // In host memory no channel of its own: one that nobody uses could be closed before a peer opens it.
  const std::unique_ptr<Group> of_gpus =
      device.is_cuda() ? full(world).device_channel("make whole", device.index(), queue->stream()) : nullptr;
  if (of_gpus) queue->heed(full(*of_gpus).alarm());
  RecordReader records(world, of_gpus ? *of_gpus : world, *queue);
  for (const Unit& unit : units) {
    for (const Parameter& param : unit.params) {
      const ShardRecord* record = find_shard_record(param.tensor);
      if (record == nullptr) continue;
      const at::Tensor whole = at::empty(param.tensor.sizes(), param.tensor.options().requires_grad(false));
      if (whole.numel() > 0) queue->upload(whole.mutable_data_ptr(), records.read(*record, param.name), whole.nbytes());
      at::Tensor(param.tensor).set_data(whole);
    }
  }
}

}  // namespace shoal
