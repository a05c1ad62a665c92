// This rank's shards of sharded weights, unit by unit, and the tier of each. Pure: the engine keeps shards by it, the
// planner counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "layout/flat_layout.h"
#include "layout/stage.h"
#include "layout/wire.h"
#include "shoal/config.h"

namespace shoal {

struct ShardOptions {
  Stage stage = 0;
  Tier tier = Tier::device;
  double ratio = 1;               // of tiers below the device: the share of the elements that is there at least
  int64_t max_in_host = 0;        // of the disk's tier: elements that stay in host memory all the same
  int buffers = 5;                // of the disk's tier: units on their way
  bool second = false;            // a second copy inside each group of the mesh's shard axis
  bool quantized = false;         // gathered weights travel in blocks of int8
  bool quantized_frozen = false;  // those that are not trained do
};

// The form in which a flat's weights travel when they are gathered for use, and lie in a second copy. A flat that one
// rank has alone does not travel.
Wire weight_wire(const FlatLayout& flat, const ShardOptions& options);
// Whether some flat travels in blocks.
bool quantizes_weights(const ModelLayout& layout, const ShardOptions& options);

// Whether the ranks of a group keep a second copy of the flat: where it is cut over more ranks than those.
bool keeps_second(const FlatLayout& flat, const ShardOptions& options);
// What this rank keeps beside its shard so that others may gather it: its part of a second copy, or its shard in
// blocks.
size_t second_nbytes(const FlatLayout& flat, const ShardOptions& options);
size_t second_nbytes(const ModelLayout& layout, const ShardOptions& options);

// The shards of one unit lie together, flat after flat, and move together.
struct UnitShards {
  size_t nbytes = 0;
  Tier tier = Tier::device;
};

// One entry a unit. From the front on each unit that still fits what the ratio leaves stays on the device; of the
// others, where the tier is the disk, each that still fits stays in host memory.
std::vector<UnitShards> place_shards(const ModelLayout& layout, const ShardOptions& options);

// What to say where there is nothing that could leave the device, or where the disk is asked for and nothing goes
// there, for all fits what may stay in host memory; empty otherwise.
std::string notice_of_unused_offload(const ModelLayout& layout, const ShardOptions& options);

// The sizes of those on disk, in the order of units: the chunks of the file.
std::vector<size_t> shards_on_disk(const std::vector<UnitShards>& units);
// Per unit: which of so many buffers its shards pass through, -1: none. Chunk i has buffer i modulo their number.
std::vector<int> shard_buffers(const std::vector<UnitShards>& units, int buffers);

}  // namespace shoal
