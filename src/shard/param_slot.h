// One parameter as libtorch sees it, with its memory under our control: attached to memory of ours, or released, when
// touching it throws a message and the process lives.
//
// [Note: how a parameter is released]
// Autograd saves aliases of a parameter that share its StorageImpl. That StorageImpl lives as long as the slot and is
// pointed at the gathered data, so every alias sees it; release takes the pointer away. The parameter itself gets a
// second StorageImpl while it is released, whose data access throws: the leaf is what a user can touch by mistake,
// while aliases are only read by the backward of a unit that has been gathered for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/slab.h"
#include "layout/cut.h"
#include "layout/flat_layout.h"
#include "shard/shard_home.h"

namespace shoal {

// What a released parameter carries after its engine is gone: where its bytes are on this rank.
struct ShardRecord {
  std::shared_ptr<ShardHome> home;  // keeps this rank's shard of the flat:
  int unit = 0;                     // with those of this unit,
  size_t offset = 0;                // from this byte on
  FlatLayout flat;
  Piece piece;    // the parameter within the flat
  Mesh mesh = 1;  // over which the flat is cut
  Over over = Over::world;
  std::string name;                           // for messages
  std::optional<std::vector<int64_t>> shape;  // of a parameter that stands empty; see leave_empty

  // The shard's bytes, until those of another unit are asked for. What is written there after change() is kept.
  const std::byte* fetch() const;
  std::byte* change() const;
  int world() const { return mesh.world(); }
  // The elements that are this rank's.
  Cut part(int rank) const { return cut(flat, over, mesh, rank); }
  bool on_device() const { return home->is_on_device(unit); }
  // Whether both are of one flat of one engine.
  bool is_of_flat_of(const ShardRecord& other) const {
    return home == other.home && unit == other.unit && offset == other.offset;
  }
};

// Puts what the ranks of a record's mesh hold of the flat, one part behind the other by rank, in the order of elements.
void put_in_order(const std::byte* by_rank, const ShardRecord& record, std::byte* whole);

class ParamSlot {
 public:
  // Takes the parameter over: from here on it has no memory until it is attached. `dtype` and `device` may differ from
  // the tensor's; the tensor then changes to them.
  ParamSlot(at::Tensor param, std::string name, DType dtype, at::Device device = at::kCPU);

  // The parameter and all its aliases read and write `data`. `owner` is kept alive by the storage. Throws if it was
  // released and somebody has put other data in its place since (param.data = ...).
  void attach(std::byte* data, std::shared_ptr<Slab> owner = nullptr);
  // Takes the memory away; touching the parameter throws. Aliases of memory with an owner keep it. It has its shape and
  // plain strides again if somebody put other data in its place (param.data = ...).
  void release();
  // Whether somebody wrote it in place since it was attached, or put other data in its place. A write through `.data`
  // leaves no trace; it is seen if watch() was called before it, which keeps a checksum of the bytes. On a GPU that
  // does nothing: a host that waits for a checksum there waits for other ranks too.
  bool was_written() const;
  void watch();
  // The engine is going: a released parameter keeps a record by which another engine finds its bytes.
  void leave(ShardRecord record);

  // Throws if somebody moved, cast or replaced the parameter behind our back.
  void check_unchanged() const;

  const at::Tensor& tensor() const { return param_; }
  const std::string& name() const { return name_; }
  int64_t numel() const { return param_.numel(); }

 private:
  int64_t version() const;
  uint64_t digest() const;
  // In our memory, or released, with the dtype, shape and strides that it was taken over with. (torch.multiprocessing
  // and share_memory() leave the storage and move what it holds.)
  bool is_in_form() const;
  [[noreturn]] void throw_replaced() const;

  at::Tensor param_;
  std::string name_;
  at::ScalarType scalar_type_;
  at::Device device_;
  bool trainable_;
  std::vector<int64_t> shape_;
  std::byte* data_ = nullptr;       // our memory, while it is attached
  int64_t version_ = 0;             // when it was attached
  std::optional<uint64_t> digest_;  // when it was watched
  c10::Storage storage_;            // seen by every alias
  c10::Storage released_;           // carried by the leaf while it is released
  bool attached_ = false;
  bool owned_ = false;  // what it is attached to is kept alive by the storage
};

// Leaves a released parameter as a tensor without elements, which every operation passes over, and its record with it.
void leave_empty(const at::Tensor& param, ShardRecord record);
// Gives such a parameter its shape again: released, touching it throws. Others are left alone.
void restore_shape(const at::Tensor& param);

// The record that a parameter carries if an engine left it released; null for an ordinary tensor.
const ShardRecord* find_shard_record(const at::Tensor& param);

at::ScalarType to_scalar_type(DType dtype);
// Throws for a dtype that Shoal does not store; `name` is for the message.
DType to_dtype(at::ScalarType type, const std::string& name);

}  // namespace shoal
