// Where a rank keeps its shards of gathered flats, unit by unit, and how their bytes come to memory: always there
// (resident), or in buffers for a while (disk_shards.h). Weights, the updater and records of released parameters use
// shards through it and do not know which of the two it is.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/slab.h"
#include "plan/weight_shards.h"
#include "shoal/group.h"
#include "store/scratch_file.h"

namespace shoal {

class Queue;

class ShardHome {
 public:
  virtual ~ShardHome() = default;

  // Where the unit's shards are while they are in memory, one flat after the other: the same place every time.
  virtual std::byte* address(int unit) const = 0;
  // Memory of some of the shards; what has no elements still has an address in it.
  virtual const std::shared_ptr<Slab>& slab() const = 0;
  // Whether that address is memory of a GPU.
  virtual bool is_on_device(int unit) const = 0;

  // The unit's bytes are at their address when it returns, until another unit is fetched or changed. Throws
  // shoal::Error when they cannot be had.
  virtual void fetch(int unit) { static_cast<void>(unit); }
  // The same, and the caller changes them: what is fetched later is what he left there.
  virtual void change(int unit) { static_cast<void>(unit); }
  // He is through with that for now: begins to bring them to where they are kept.
  virtual void store(int unit) { static_cast<void>(unit); }
  // A collective reads the bytes that were fetched: they stay until it is over, on a GPU too.
  virtual void lend(int unit, const Handle& reader) { static_cast<void>(unit), static_cast<void>(reader); }

  // The units that are used next, the first maybe now: begins to bring them, without waiting.
  virtual void expect(const std::vector<int>& units) { static_cast<void>(units); }
  // How many of them it can make use of.
  virtual int reads_ahead() const { return 0; }

  // The channel of the collectives is going; the shards may stay for the records of released parameters.
  virtual void leave() {}

  // Null where nothing is on disk.
  virtual const ScratchFile* file() const { return nullptr; }
};

// One unit, for ever in this memory.
std::shared_ptr<ShardHome> make_resident_home(std::shared_ptr<Slab> slab);

// Units on the device lie together in memory that is taken for them, and so do those of the host's tier. Of units on
// disk there is nothing here.
std::shared_ptr<ShardHome> make_resident_home(
    const std::vector<UnitShards>& units,
    const std::function<std::shared_ptr<Slab>(size_t nbytes, Tier tier)>& allocate);

// For what place_shards() says; `file` is that of make_shard_file(), `buffers` as many as ShardOptions has. Resident
// shards lie in the channel's memory, or in the host's where the queue's is a GPU's and the tier is not the device.
std::shared_ptr<ShardHome> make_shard_home(const std::vector<UnitShards>& units, int buffers,
                                           std::unique_ptr<ScratchFile> file, Group& channel, Queue& queue,
                                           const std::shared_ptr<Ledger>& ledger);

// The file for shards on disk, with all its space; null where there are none. Apart from the home, so that a rank
// whose disk is full finds out before ranks talk.
std::unique_ptr<ScratchFile> make_shard_file(const ModelLayout& layout, const Config& config,
                                             const std::shared_ptr<Ledger>& ledger);

}  // namespace shoal
