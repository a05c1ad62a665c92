// Parameters sharded each on its own, before units are known: a model larger than a rank is built so, and an engine
// takes the shards over. What a destroyed engine left released is gathered by the same calls. Made for bindings: a C++
// model declares placeholders instead (shoal/unit.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/dtype.h"
#include "shoal/group.h"

namespace shoal {

enum class Standing : uint8_t {
  released,  // has its shape; touching it throws
  empty,     // has no elements, as DeepSpeed leaves it; what is done to it is passed over
};

// Collective. Keeps this rank's part of rank 0's values, in `dtype`.
void shard_param(const at::Tensor& param, const std::string& name, DType dtype, Group& world,
                 Standing standing = Standing::released);

// Before an engine takes parameters over: those that stand empty get their shape again.
void restore_shapes(const std::vector<at::Tensor>& params);

// Whether the parameter is released and belongs to no engine.
bool is_lone_shard(const at::Tensor& param);

// What a rank, this one, keeps of a lone shard, in a row: a copy in host memory, in the dtype that is kept. Talks to
// nobody.
at::Tensor read_lone_shard(const at::Tensor& param, int rank);

// A parameter that stands empty can be cast or moved to another device like any tensor, and its shard stays behind.
// Kept beside the parameter, it can be given back.
class KeptShard {
 public:
  // Of a lone shard.
  explicit KeptShard(const at::Tensor& param);
  ~KeptShard();
  KeptShard(const KeptShard&) = delete;
  KeptShard& operator=(const KeptShard&) = delete;

  // If the parameter has no elements now, and had some: it stands as a lone shard again, on the device where it is.
  void give_back(const at::Tensor& param) const;

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

// Lone shards made whole while this lives. All calls are collective but the destructor, which drops what was written.
class GatheredShards {
 public:
  GatheredShards(const std::vector<at::Tensor>& params, Group& world);
  ~GatheredShards();
  GatheredShards(const GatheredShards&) = delete;
  GatheredShards& operator=(const GatheredShards&) = delete;

  // Releases the parameters again. `written_by`: the rank whose values all take; nothing: values are as they were.
  void finish(std::optional<int> written_by = {});

 private:
  struct Param;
  Group& world_;
  std::vector<std::unique_ptr<Param>> params_;
};

}  // namespace shoal
