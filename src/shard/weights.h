// The weights of all units: their memory on this rank, and their life. Whole flats stay attached to their
// parameters; sharded flats are gathered into the arena for use and released after it.
// Carries out what the schedule decides; decides nothing itself.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "device/queue.h"
#include "device/slab.h"
#include "layout/cut.h"
#include "shard/carry.h"
#include "shard/param_slot.h"
#include "shard/shard_home.h"
#include "shoal/config.h"
#include "shoal/group.h"

namespace shoal {

class Weights {
 public:
  // Allocates by the layout, where the queue's memory is; zero until somebody fills it. Weights that travel in blocks
  // become blocks on `queue`, and elements again on `gathered`, the queue on which the channel's collectives run. Both
  // outlive this object, the channel whatever gathers or publishes. `shards` says where sharded flats are kept, `file`
  // is make_shard_file()'s. With a GPU, those of the host come to it when they are gathered.
  Weights(const ModelLayout& layout, const ShardOptions& shards, std::unique_ptr<ScratchFile> file, Group& channel,
          Queue& queue, Queue& gathered, const std::shared_ptr<Ledger>& ledger);

  // Which elements of a flat this rank holds.
  const Cuts& cuts() const { return cuts_; }

  // Hands over a unit's parameters, in the order of its spec. Whole flats are attached at once.
  void take_params(int unit, std::vector<ParamSlot> params);

  // What went along the axes of the mesh, beside the channel itself.
  const AxisGroups& groups() const { return groups_; }
  void close_groups() { groups_.close(); }

  // The place of this rank's shard of a flat; of a whole flat, of the part that it updates. The bytes of a sharded flat
  // are there after fetch() or change(), until either is called for another unit or a unit is gathered.
  std::byte* shard(int unit, int flat) const;
  void fetch(int unit) const { home_->fetch(unit); }
  // To change them. store() may follow, when that is done: they are written while other work goes on.
  void change(int unit) {
    units_[static_cast<size_t>(unit)].changed = true;
    home_->change(unit);
  }
  void store(int unit) { home_->store(unit); }
  // Takes bytes from the queue's memory to their place in a shard of the unit, which is being changed.
  void put(int unit, Queue& queue, std::byte* place, const std::byte* from, size_t nbytes);
  // The units whose shards are used next, the first maybe now: those that are on disk begin to come.
  void expect(const std::vector<int>& units) { home_->expect(units); }
  // How many of them are of use.
  int reads_ahead() const { return home_->reads_ahead(); }
  // The whole flat, where this stage keeps it whole; null otherwise.
  std::byte* whole(int unit, int flat) const;
  bool is_sharded(int unit, int flat) const {
    return units_[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)].sharded;
  }

  // Whether shards are in host memory or on disk, and the queue's memory is a GPU's: of some unit, or of this one.
  bool is_off_device() const { return off_device_; }
  bool is_off_device(int unit) const { return units_[static_cast<size_t>(unit)].off_device; }
  // Whether the unit's shards are on disk.
  bool is_on_disk(int unit) const { return units_[static_cast<size_t>(unit)].on_disk; }

  // Starts gathering the unit's sharded flats into the arena.
  void gather(int unit);
  // Waits for the gather and attaches the parameters.
  void finish_gather(int unit);
  // Takes the memory away from the parameters. An unfinished gather is waited for first.
  void release(int unit);
  // The name of a parameter that somebody wrote in place since the unit was gathered, and whose values go when it is
  // released; null where there is none. On a CPU writes through `.data` are seen in the gathers that are watched.
  const std::string* written_in_vain(int unit) const;

  // Throws if somebody moved, cast or replaced a parameter: of any unit, or of this one.
  void check_unchanged() const;
  void check_unchanged(int unit) const;

  // Whether gathering the unit reads its shards, which it does not where a shard is the flat.
  bool gather_reads(int unit) const;

  // After an update: starts bringing every rank's new shard of the unit's whole flats to all ranks.
  void publish(int unit);
  // Whether that is anything to do, for any unit.
  bool publishes() const;
  void finish_publish();

  // Whether a pass has the unit gathered, or is gathering it.
  bool in_pass(int unit) const { return units_[static_cast<size_t>(unit)].gathered; }
  // While somebody else holds the unit's parameters whole, gather and release leave them alone.
  void set_held(int unit, bool held) { units_[static_cast<size_t>(unit)].held = held; }

  // [Note: the second copy]
  // With zero_hpz_partition_size a group of ranks keeps among them a second copy of the weights, each rank its part
  // over the shard axis. The first gather of a unit in training fills it on its way: the hop along `replica` ends in
  // it, the hop along `shard` begins there. Later gathers are that second hop alone, until the weights change. Whether
  // a copy is filled decides about hops, so all ranks must know the same of it: it is emptied where all ranks come by,
  // after an update, a load or a write, not where one rank's part changes.
  //
  // [Note: weights in blocks]
  // With zero_quantized_weights a gather for use travels in blocks of int8 (kernels/blocks.h), whatever its hops: the
  // owner of a part makes them of its exact weights, once a gather, and everybody, the owner too, computes with what
  // comes out of them. They come to lie at the end of the flat's place in the arena and become elements from its front,
  // so they take no other memory there. The owner's blocks, and a second copy, are kept in memory that peers can read.
  // Of weights in host memory or on disk a GPU makes its blocks at the front of that place, where they come first.
  // What a user gathers, a checkpoint reads and the optimizer updates is exact.
  //
  // From here on gathers are those of training or of evaluation, which leaves second copies as they are, and uses those
  // that are filled.
  void begin_pass(bool trains) { trains_ = trains; }
  // The weights have changed, of one unit or of all. Every rank says so.
  void empty_second_copy(int unit);
  void empty_second_copies();

  // Gathers one sharded flat into memory of the caller's. Blocks.
  void gather_into(int unit, int flat, std::byte* whole);

  // The engine is going: released parameters keep a record of their shard, whole ones keep their memory.
  void leave();

  // Of shards on disk; null where there are none.
  const ScratchFile* file() const { return home_->file(); }

  std::vector<ParamSlot>& params(int unit) { return units_[static_cast<size_t>(unit)].params; }

 private:
  struct Flat {
    size_t offset = 0;         // among the unit's shards, or the whole flats
    size_t arena_offset = 0;   // within the unit's arena range
    size_t second_offset = 0;  // of its part of the second copy
    bool sharded = false;
    Wire wire;  // of gathers for use
    bool has_second = false;
    bool alone = false;  // its shard is the flat: gathering it takes neither bytes nor memory
  };
  struct Unit {
    std::vector<Flat> flats;
    bool off_device = false, on_disk = false;  // its shards
    std::vector<ParamSlot> params;
    std::vector<Handle> gathers;
    bool gathered = false;        // or being gathered
    std::byte* memory = nullptr;  // arena range, meanwhile
    bool attached = false;
    std::array<int, 2> gather_counts{};  // of evaluation, and of training
    bool held = false;                   // by a gather for the user
    bool has_second = false;             // some flat of it has a second copy
    bool second_filled = false;          // and it is that of the weights as they are, on every rank
    bool changed = false;                // on this rank since then
  };

  // Makes blocks of this rank's part of a flat; `room` has room for its elements.
  void quantize(int unit, int flat, std::byte* blocks, std::byte* room);
  // Begins to gather a sharded flat. `for_use`: in a pass, which fills the second copy on its way, where copies are
  // filled.
  Handle gather_flat(int unit, int flat, const char* what, std::byte* to, bool for_use);
  // Throws if the unit's second copy is of weights that have changed since, of which other ranks know nothing.
  void check_second_copy(int unit) const;
  // Ranks update a part of the flat each and keep all of it.
  bool is_published(int unit, int flat) const;
  // Looks for writes through `.data` until the unit is released.
  void watch(int unit);
  void attach_flat(int unit, int flat, std::byte* data, const std::shared_ptr<Slab>& owner);

  const ModelLayout& layout_;
  Cuts cuts_;
  bool off_device_ = false;  // shards of some unit
  AxisGroups groups_;
  Queue& queue_;
  Queue& gathered_;
  std::vector<Unit> units_;
  std::shared_ptr<Slab> second_;  // second copies, and shards in blocks; null: there is neither
  bool trains_ = false;
  std::shared_ptr<Slab> wholes_;     // shared with the parameters' storages, which may outlive this
  std::shared_ptr<ShardHome> home_;  // shared with the records of released parameters
  std::unique_ptr<Arena> arena_;
  std::vector<Handle> publishes_;
};

}  // namespace shoal
