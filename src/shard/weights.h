// The weights of all units: their memory on this rank, and their life. Whole flats stay attached to their
// parameters; sharded flats are gathered into the arena for use and released after it.
// Carries out what the schedule decides; decides nothing itself.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "device/queue.h"
#include "device/slab.h"
#include "layout/stage.h"
#include "shard/param_slot.h"
#include "shoal/config.h"
#include "shoal/group.h"

namespace shoal {

class Weights {
 public:
  // Allocates by the layout, where the queue's memory is; zero until somebody fills it. Channel and queue outlive this
  // object.
  // `shards` is the tier of sharded flats. With a GPU, those of the host come to it when they are gathered.
  Weights(const ModelLayout& layout, int stage, Tier shards, Group& channel, Queue& queue,
          const std::shared_ptr<Ledger>& ledger);

  // Hands over a unit's parameters, in the order of its spec. Whole flats are attached at once.
  void take_params(int unit, std::vector<ParamSlot> params);

  // This rank's shard of a flat; inside the whole flat where that is kept.
  std::byte* shard(int unit, int flat) const;
  // The whole flat, where this stage keeps it whole; null otherwise.
  std::byte* whole(int unit, int flat) const;
  bool is_sharded(int unit, int flat) const {
    return units_[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)].sharded;
  }

  // Whether the flat's shard is in host memory and the queue's is not.
  bool is_off_device(int unit, int flat) const { return off_device_ && is_sharded(unit, flat); }

  // Starts gathering the unit's sharded flats into the arena.
  void gather(int unit);
  // Waits for the gather and attaches the parameters.
  void finish_gather(int unit);
  // Takes the memory away from the parameters. An unfinished gather is waited for first.
  void release(int unit);

  // Whether gathering the unit reads its shards, which it does not where a shard is the flat.
  bool gather_reads(int unit) const;

  // After an update: starts bringing every rank's new shard of the unit's whole flats to all ranks.
  void publish(int unit);
  // Whether that is anything to do, for any unit.
  bool publishes() const;
  void finish_publish();

  // Whether a pass has the unit gathered, or is gathering it.
  bool is_gathered(int unit) const { return units_[static_cast<size_t>(unit)].gathered; }
  // While somebody else holds the unit's parameters whole, gather and release leave them alone.
  void set_held(int unit, bool held) { units_[static_cast<size_t>(unit)].held = held; }

  // Gathers one sharded flat into memory of the caller's. Blocks.
  void gather_into(int unit, int flat, std::byte* whole);

  // The engine is going: released parameters keep a record of their shard, whole ones keep their memory.
  void leave();

  std::vector<ParamSlot>& params(int unit) { return units_[static_cast<size_t>(unit)].params; }

 private:
  struct Flat {
    size_t offset = 0;        // of this rank's bytes in its slab
    size_t arena_offset = 0;  // within the unit's arena range
    bool sharded = false;
    bool alone = false;  // its shard is the flat: gathering it takes neither bytes nor memory
  };
  struct Unit {
    std::vector<Flat> flats;
    std::vector<ParamSlot> params;
    std::vector<Handle> gathers;
    bool gathered = false;        // or being gathered
    std::byte* memory = nullptr;  // arena range, meanwhile
    bool attached = false;
    bool held = false;  // by a gather for the user
  };

  // Ranks update a part of the flat each and keep all of it.
  bool is_published(int unit, int flat) const;
  const std::shared_ptr<Slab>& slab_of(const Flat& flat) const { return flat.sharded ? shards_ : wholes_; }
  void attach_flat(int unit, int flat, std::byte* data, const std::shared_ptr<Slab>& owner);

  const ModelLayout& layout_;
  int stage_;
  bool off_device_;  // shards are in host memory, and the queue's is a GPU's
  Group& channel_;
  std::vector<Unit> units_;
  std::shared_ptr<Slab> wholes_;  // shared with the parameters' storages, which may outlive this
  std::shared_ptr<Slab> shards_;
  std::unique_ptr<Arena> arena_;
  std::vector<Handle> publishes_;
};

}  // namespace shoal
