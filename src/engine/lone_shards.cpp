// See include/shoal/lone_shards.h. A lone shard is a parameter that carries the record of a flat of its own. What is
// made here lies in host memory, also of parameters on a GPU; what an engine left on a GPU lies there. All of it
// travels between ranks in host memory: it is moved a few times in a run.
#include "shoal/lone_shards.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "comm/group/full_group.h"
#include "device/cuda.h"
#include "kernels/convert.h"
#include "layout/cut.h"
#include "shard/compute_queue.h"
#include "shard/param_slot.h"
#include "shoal/error.h"

namespace shoal {

namespace {

std::shared_ptr<Ledger> lone_ledger() {
  static const auto ledger = std::make_shared<Ledger>();  // lone shards belong to no engine that could count them
  return ledger;
}

// When it returns, the bytes are there. `device`: the one of the two places that is not the host's, if any.
void move_bytes(void* to, const void* from, size_t nbytes, at::Device device) {
  if (!device.is_cuda()) {
    std::memcpy(to, from, nbytes);
    return;
  }
  cuda::use_device(device.index());
  cuda::copy(to, from, nbytes, current_stream(device));
  cuda::synchronize(current_stream(device));
}

std::shared_ptr<Slab> memory_on(at::Device device, size_t nbytes) {
  if (device.is_cuda()) cuda::use_device(device.index());
  const auto backing = device.is_cuda() ? Slab::Backing::device : Slab::Backing::anonymous;
  return Slab::create(nbytes, backing, lone_ledger(), MemoryKind::user_gather);
}

FlatLayout lone_flat(int64_t numel, DType dtype, bool trainable, int world) {
  FlatLayout flat;
  flat.dtype = dtype;
  flat.trainable = trainable;
  flat.numel = numel;
  flat.pieces = {{.param = 0, .offset = 0, .numel = numel}};
  cut_evenly(flat, world);
  return flat;
}

// Elements [begin, end) of a lone shard's flat that are in this rank's shard and of the parameter. Empty: begin >= end.
struct OwnRange {
  int64_t shard_begin = 0, begin = 0, end = 0;
};

OwnRange own_range(const ShardRecord& record, int rank) {
  const Cut held = record.part(rank);
  return {held.begin, std::max(held.begin, record.piece.offset),
          std::min(held.end, record.piece.offset + record.piece.numel)};
}

}  // namespace

void shard_param(const at::Tensor& param, const std::string& name, DType dtype, Group& world, Standing standing) {
  const at::Tensor dense = param.detach().to(at::kCPU).contiguous();
  const FlatLayout flat = lone_flat(param.numel(), dtype, param.requires_grad(), world.size());
  const size_t element = nbytes_of(dtype);
  const auto whole = memory_on(at::kCPU, static_cast<size_t>(flat.numel) * element);
  kernels::convert(dense.const_data_ptr(), to_dtype(dense.scalar_type(), name), whole->data(), dtype, dense.numel());
  world
      .broadcast({.subject = {"shard", name},
                  .data = whole->data(),
                  .nbytes = static_cast<size_t>(flat.numel) * element,
                  .root = 0,
                  .keep = whole})
      .wait();

  ShardRecord record;
  const size_t shard_nbytes = static_cast<size_t>(flat.rank_numel) * element;
  const auto slab = full(world).allocate(shard_nbytes, lone_ledger(), MemoryKind::weights);
  record.home = make_resident_home(slab);
  record.flat = flat;
  record.piece = flat.pieces.front();
  record.mesh = world.size();
  const Cut own = record.part(world.rank());
  std::memcpy(slab->data(), whole->data() + static_cast<size_t>(own.begin) * element, shard_nbytes);
  record.name = name;
  ParamSlot slot(param, name, dtype, param.device());
  if (standing == Standing::empty) {
    leave_empty(param, std::move(record));
  } else {
    slot.leave(std::move(record));
  }
}

void restore_shapes(const std::vector<at::Tensor>& params) {
  for (const at::Tensor& param : params) restore_shape(param);
}

bool is_lone_shard(const at::Tensor& param) { return find_shard_record(param) != nullptr; }

at::Tensor read_lone_shard(const at::Tensor& param, int rank) {
  const ShardRecord* record = find_shard_record(param);
  SHOAL_CHECK(record != nullptr, "the parameter is no lone shard");
  const auto [shard_begin, begin, end] = own_range(*record, rank);
  const int64_t numel = std::max<int64_t>(0, end - begin);
  at::Tensor part = at::empty({numel}, at::TensorOptions(to_scalar_type(record->flat.dtype)));
  const size_t element = nbytes_of(record->flat.dtype);
  if (numel > 0) {
    move_bytes(part.data_ptr(), record->fetch() + static_cast<size_t>(begin - shard_begin) * element,
               static_cast<size_t>(numel) * element, record->on_device() ? param.device() : at::Device(at::kCPU));
  }
  return part;
}

struct KeptShard::Kept {
  ShardRecord record;
};

KeptShard::KeptShard(const at::Tensor& param) {
  const ShardRecord* found = find_shard_record(param);
  SHOAL_CHECK(found != nullptr, "the parameter is no lone shard");
  kept_ = std::make_unique<Kept>(Kept{*found});
}
KeptShard::~KeptShard() = default;

void KeptShard::give_back(const at::Tensor& param) const {
  const ShardRecord& record = kept_->record;
  if (param.numel() > 0 || record.piece.numel == 0 || !record.shape || is_lone_shard(param)) return;
  leave_empty(param, record);
}

struct GatheredShards::Param {
  ShardRecord record;
  std::shared_ptr<Slab> whole;  // the flat, in host memory
  std::shared_ptr<Slab> there;  // the parameter, where it lives; null: in the flat
  ParamSlot slot;

  std::byte* in_flat() const { return whole->data() + static_cast<size_t>(record.piece.offset) * element(); }
  std::byte* values() const { return there ? there->data() : in_flat(); }
  size_t nbytes() const { return static_cast<size_t>(record.piece.numel) * element(); }
  size_t element() const { return nbytes_of(record.flat.dtype); }
  at::Device device() const { return slot.tensor().device(); }
  // As it stood before.
  void leave() {
    if (record.shape) {
      leave_empty(slot.tensor(), std::move(record));
    } else {
      slot.leave(std::move(record));
    }
  }
};

GatheredShards::GatheredShards(const std::vector<at::Tensor>& params, Group& world) : world_(world) {
  for (const at::Tensor& param : params) {
    const ShardRecord* found = find_shard_record(param);
    if (found == nullptr) continue;
    if (found->world() != world.size()) {
      throw Error("gather", fmt::format("a parameter was left sharded over {} ranks, and this group has {}. Use the "
                                        "same number of ranks.",
                                        found->world(), world.size()));
    }
    const ShardRecord record = *found;
    restore_shape(param);
    const size_t element = nbytes_of(record.flat.dtype);
    const size_t shard_nbytes = static_cast<size_t>(record.part(world.rank()).numel()) * element;
    const auto by_rank = memory_on(at::kCPU, shard_nbytes * static_cast<size_t>(world.size()));
    std::byte* own = by_rank->data() + static_cast<size_t>(world.rank()) * shard_nbytes;
    const std::byte* shard = record.fetch();
    if (record.on_device()) move_bytes(own, shard, shard_nbytes, param.device());
    world
        .all_gather({.subject = {"gather for the user", record.name},
                     .shard = record.on_device() ? own : shard,
                     .whole = by_rank->data(),
                     .shard_nbytes = shard_nbytes,
                     .keep = record.home})
        .wait();
    auto whole = by_rank;
    if (record.mesh.axes().size() > 1) {
      whole = memory_on(at::kCPU, static_cast<size_t>(record.flat.numel) * element);
      put_in_order(by_rank->data(), record, whole->data());
    }
    ParamSlot slot(param, record.name, record.flat.dtype, param.device());
    params_.push_back(std::make_unique<Param>(Param{record, whole, nullptr, std::move(slot)}));
    Param& gathered = *params_.back();
    if (param.is_cuda()) {
      gathered.there = memory_on(param.device(), gathered.nbytes());
      move_bytes(gathered.there->data(), gathered.in_flat(), gathered.nbytes(), param.device());
    }
    gathered.slot.attach(gathered.values(), gathered.there ? gathered.there : whole);
  }
}

void GatheredShards::finish(std::optional<int> written_by) {
  for (const std::unique_ptr<Param>& param : params_) {
    ShardRecord& record = param->record;
    if (!written_by) continue;
    if (param->there) move_bytes(param->in_flat(), param->values(), param->nbytes(), param->device());
    world_
        .broadcast({.subject = {"take written values", record.name},
                    .data = param->in_flat(),
                    .nbytes = param->nbytes(),
                    .root = *written_by,
                    .keep = param->whole})
        .wait();
    const auto [shard_begin, begin, end] = own_range(record, world_.rank());
    if (begin >= end) continue;
    move_bytes(record.change() + static_cast<size_t>(begin - shard_begin) * param->element(),
               param->whole->data() + static_cast<size_t>(begin) * param->element(),
               static_cast<size_t>(end - begin) * param->element(),
               record.on_device() ? param->device() : at::Device(at::kCPU));
  }
  for (const std::unique_ptr<Param>& param : params_) param->leave();
  params_.clear();
}

GatheredShards::~GatheredShards() {
  for (const std::unique_ptr<Param>& param : params_) param->leave();
}

}  // namespace shoal
