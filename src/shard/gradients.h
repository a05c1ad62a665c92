// The gradients of all units on this rank: taken from autograd as they come, reduced over the ranks unit by unit,
// kept until the update. When a unit is reduced is decided elsewhere; how, by the gradient rule of each flat.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "device/queue.h"
#include "layout/cut.h"
#include "plan/host_flats.h"
#include "shard/carry.h"
#include "shard/gradient_homes.h"
#include "shard/sum_errors.h"
#include "shoal/group.h"

namespace shoal {

struct ReduceOptions {
  float factor = 1.0f;      // multiplies the sum over all leaves of a step
  int64_t piece_numel = 0;  // reduce_bucket_size
  int slots = 2;            // units on their way at one time, without waiting
  ErrorRule errors = {};    // of gradients that are quantized
};

class Gradients {
 public:
  // Gradients are taken and added on `queue`, and summed up right after they are reduced on `reduced`, the queue on
  // which the channel's collectives run. All three outlive this object. Those of the flats `in_host` wait for the
  // update in host memory.
  Gradients(const ModelLayout& layout, const GradientOptions& options, const ReduceOptions& reduce, Group& channel,
            Queue& queue, Queue& reduced, std::shared_ptr<Ledger> ledger, const HostFlats& in_host = {});

  // The micro-step that follows is number `index` of the step.
  void begin_micro_step(int64_t index);
  // Whether it, and those that follow, end the step: whoever counts micro-steps says so. Until told, they do.
  void set_last(bool last) { last_ = last; }
  void set_factor(float factor) { reduce_.factor = factor; }
  // Takes one gradient of a parameter, times a factor; a second one in the same micro-step is added. One that comes
  // when the unit's reduction has begun would be lost, and is an error.
  void deposit(int unit, int param, const at::Tensor& grad, double factor = 1);
  // Where the next gradient of a parameter, in this dtype, may be made and then deposited from; once in a micro-step.
  // Null where it would be added to what is there, or kept in another dtype.
  std::byte* target(int unit, int param, DType dtype);
  // Starts the unit's reduction, as far as this micro-step asks for one. Parameters without a gradient count as zero.
  void reduce(int unit);
  // A unit that is to collect, where all slots are on their way, gets one of its own and does not wait for another's.
  void grow_slots() { waits_for_slots_ = false; }
  // From here on it waits again.
  void settle_slots();
  // From here on every micro-step is reduced by itself and added to what is there, however many come before the step;
  // between micro-steps, when nothing is on its way. Takes the memory that this needs; what is there stays.
  void accumulate_more();
  const GradientOptions& options() const { return options_; }
  // Waits for every reduction that was started; throws what went wrong in them.
  void wait();
  // What rounding took from earlier sums is not given back any more: other weights are here now.
  void forget_errors() { errors_.forget(); }
  bool keeps_errors() const { return options_.keeps_errors; }
  // Of one unit's reductions since the micro-step began: whether all are given to the device, or over in host memory;
  // and what waits, in any thread, until they are over on the device too.
  bool is_reduced(int unit) const;
  std::function<void()> awaiting(int unit) const;

  // Where the update finds this rank's part of the mean gradient, after wait(); in host memory, or in the queue's.
  bool is_in_host(int unit, int flat) const {
    return units_[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)].in_host;
  }
  const std::byte* shard(int unit, int flat) const;
  // And that of an element of the flat, which is among them.
  const std::byte* at(int unit, int flat, int64_t element) const;
  // The whole mean gradient, where this stage keeps it.
  const std::byte* whole(int unit, int flat) const;
  const GradientRule& rule(int unit, int flat) const;
  // Elements [begin, begin + numel) of a flat, as fp32 in host memory, of what the update finds: this rank's shard, or
  // the whole at a stage that keeps states whole; after wait().
  void read(int unit, int flat, int64_t begin, int64_t numel, float* values) const;
  // Puts other values there, which the sums of squares then count. Where the whole is kept for the update, every rank
  // writes the whole.
  void write(int unit, int flat, int64_t begin, int64_t numel, const float* values);

  // The squares of this rank's shard of each trainable flat, summed up to what travels for the norm, in the places of
  // layout/norm_tops.h, in the queue's memory; after wait().
  const double* sum_shard_squares();
  // How long the queue has stood still for gradients that were to come back to it, as far as it has come.
  double held_seconds();
  // What went along the axes of the mesh, beside the channel itself.
  const AxisGroups& groups() const { return groups_; }
  void close_groups() { groups_.close(); }
  // Why host memory for them could not be pinned; "" where it was, or none is used.
  std::string unpinned_because() const { return homes_ ? homes_->unpinned_because() : ""; }

 private:
  struct Flat {
    bool trainable = false;
    GradientRule rule;
    bool in_host = false;
    size_t kept_offset = 0;        // in the kept slab, or of what the unit keeps in host memory
    size_t slot_offset = 0;        // within the unit's reduce slot
    size_t open_offset = 0;        // of the sum of an open group, in its slab
    double* piece_sums = nullptr;  // in the sums slab
    bool written = false;          // since the sums were made
  };
  struct Param {
    int flat = -1;  // -1: frozen
    int64_t offset = 0;
    int64_t numel = 0;
    bool seen = false;  // in this micro-step
    bool lent = false;  // its target, in this micro-step
  };
  struct Unit {
    std::vector<Flat> flats;
    std::vector<Param> params;
    int slot = -1;
    bool reduced = false;         // in this micro-step: nothing is added any more
    std::vector<Handle> reduces;  // of this micro-step
  };
  struct Slot {
    std::shared_ptr<Slab> slab;
    int unit = -1;                // whose gradients it holds; -1: free
    std::vector<Handle> reduces;  // empty while gradients are still being collected
    uint64_t turn = 0;            // when it was last handed out
  };

  // In which dtype gradients of a flat are collected, and where those of a parameter.
  DType collected_dtype(const Flat& flat) const { return collects_in_slot(flat) ? flat.rule.wire : flat.rule.kept; }
  std::byte* place_of(int unit, const Param& param);
  // Whether the next one is added to what is there: of this micro-step, or of earlier ones.
  bool is_added(const Flat& flat, const Param& param) const {
    return param.seen || (!collects_in_slot(flat) && micro_step_ > 0);
  }
  bool collects_in_slot(const Flat& flat) const { return flat.rule.through_slot && flat.rule.every_micro_step; }
  // Where a flat's gradients are collected or reduced to in this micro-step, and where they wait for the update. What
  // is kept of it begins there.
  std::byte* work_place(int unit, const Flat& flat);
  std::byte* rest_place(int unit, const Flat& flat) const;
  // How far the gradient of an element of the flat is from where what is kept begins.
  size_t offset_of(const Flat& flat, const FlatLayout& layout, int64_t element) const;
  std::byte* kept_at(int unit, int flat, int64_t begin, int64_t numel) const;
  std::byte* slot_of(int unit);
  int pick_slot();
  // Rules of all flats by options_, and memory for them.
  void lay_out(const HostFlats& in_host);
  void make_sums();
  void fill_missing(int unit);
  // What of the fold the next reduction of a flat is: see [Note: the fold] in layout/stage.h.
  void say_fold(const Flat& flat, ReduceScatter& args) const;
  // The collectives after which the flat is where it waits.
  std::vector<Handle> reduce_flat(int unit, int flat);

  const ModelLayout& layout_;
  GradientOptions options_;
  Cuts cuts_;
  ReduceOptions reduce_;
  AxisGroups groups_;
  Queue& queue_;
  Queue& reduced_;
  std::shared_ptr<Ledger> ledger_;  // shared with the slabs
  std::vector<Unit> units_;
  std::shared_ptr<Slab> kept_;
  std::shared_ptr<Slab> sums_on_way_;     // between two hops of a reduction; null: none makes two
  std::shared_ptr<Slab> open_groups_;     // sums of groups that are not full, in fp32; empty where none stay open
  SumErrors errors_;                      // of sums that travel in blocks
  std::unique_ptr<GradientHomes> homes_;  // null: none wait in host memory
  double held_seconds_ = 0;
  std::shared_ptr<Slab> sums_;                 // of squares: the tops of all flats, then the pieces of each flat
  std::vector<kernels::PieceSums> flat_sums_;  // pieces to tops
  size_t slot_nbytes_ = 0;
  std::vector<Slot> slots_;
  std::vector<Handle> pending_;
  int64_t micro_step_ = 0;
  bool last_ = true;         // the micro-step ends the step
  bool after_mean_ = false;  // it came after one that ended the step: what is kept is the mean so far
  bool from_mean_ = false;   // so did it or one before it in this step: a sum is kept, whatever groups are closed since
  int64_t leaves_ = 0;       // of all ranks, folded since the step began or since a mean
  bool waits_for_slots_ = true;
  uint64_t turn_ = 0;
};

}  // namespace shoal
