// The optimizer's states on this rank, and the update of a unit's weights: one fused pass over what this rank owns.
// Knows no stage: it owns the range of each flat that the layout gives it, a shard or the whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "device/queue.h"
#include "layout/stage.h"
#include "optim/group_steps.h"
#include "optim/host_updates.h"
#include "optim/state_memory.h"
#include "plan/update_split.h"
#include "shard/gradients.h"
#include "shard/weights.h"
#include "shoal/config.h"

namespace shoal {

class Updater {
 public:
  // States lie where the config's offload section wants them, zero; updates run on the queue, which outlives this
  // object. Communicates nothing.
  Updater(const ModelLayout& layout, const std::vector<UnitSpec>& specs, const Config& config, int rank, Queue& queue,
          const std::shared_ptr<Ledger>& ledger);

  // Elements of a flat whose states this rank keeps; empty for a frozen flat.
  struct Range {
    int64_t begin = 0, end = 0;
  };
  Range kept_range(int unit, int flat) const;

  // Sets weights and masters of elements [begin, begin + numel) of a flat from their fp32 values, as far as this rank
  // keeps them, and leaves the moments alone.
  void set_values(int unit, int flat, Range range, const float* values, Weights& weights);
  // The fp32 values of elements that this rank keeps: masters of a trained flat, the weights of a frozen one.
  void get_values(int unit, int flat, Range range, float* values, const Weights& weights) const;

  // How many moments the optimizer keeps, and moment 0 or 1 of elements in the kept range.
  int moments() const { return moments_; }
  void get_moment(int which, int unit, int flat, Range range, float* values) const;
  void set_moment(int which, int unit, int flat, Range range, const float* values);

  // A parameter was written from outside: takes its new values from the whole flat, in the flat's dtype and the queue's
  // memory, as exact.
  void reset_param(int unit, int flat, const Piece& piece, const std::byte* whole, Weights& weights);

  // A step is near: begins to bring states that are not at hand.
  void read_ahead();
  // Between parts of a pass, which states on their way keep step with.
  void pace() { states_.pace(); }
  // A step has ended, taken or skipped.
  void end_step() { states_.end_step(); }
  // Lets states that pass through the device's memory have that much of it. Between steps.
  void grow_ring(size_t nbytes);
  // Whether more states pass through the device's memory than it holds at a time, and the host could update some.
  bool can_share() const;
  // How fast states come and the host updates: measured. Between steps.
  UpdateRates measure_rates();
  // Leaves the host such a share of those states that both end together, and says of how many elements. Between steps.
  int64_t share_with_host(const UpdateRates& rates);

  // A step is decided: the host begins its part of the update. Weights and gradients are the same objects in every
  // call, and nobody else's until each unit is updated.
  void begin_step(const StepConstants& constants, Weights& weights, const Gradients& gradients);
  // Updates this rank's part of the unit's trainable flats, units in their order.
  void update(int unit, const StepConstants& constants, Weights& weights, const Gradients& gradients);
  // An update threw: waits until nothing is under way.
  void abandon_step();

  const StateMemory& states() const { return states_; }
  // How long the queue has stood still for states of the host, or for weights that it updates.
  double held_seconds();
  // Elements whose states the host updates in place of the device.
  int64_t host_updated_numel() const;

 private:
  // The chunks of one flat, and the elements whose states this rank keeps in them.
  struct Flat {
    int first_chunk = 0, last_chunk = 0;  // one past the last
    int64_t begin = 0, end = 0;
  };
  // What one launch updates.
  struct Launch {
    int chunk = -1;  // one chunk; -1: all chunks of the unit that are always at hand
    std::unique_ptr<UpdateList> list;
  };
  // What is done for a unit: launches, and parts of what the host updates.
  struct UnitWork {
    std::vector<Launch> launches;
    int first_part = 0, last_part = 0;  // one past the last
  };
  // Weights of the host that come to the device while their unit is updated.
  struct Fetched {
    std::byte* home = nullptr;
    size_t offset = 0;  // in the memory for them
    size_t nbytes = 0;
  };
  // Where the elements of a chunk have their weights and gradients.
  struct Elements {
    std::byte* weight = nullptr;
    const std::byte* grad = nullptr;
    DType grad_dtype = DType::f32;
  };

  // Elements of the flat whose weights this rank keeps.
  Range weight_range(int unit, int flat, const Weights& weights) const;
  // The part of each chunk that has elements of the range: use(chunk index, from element, to element).
  void for_chunks(int unit, int flat, Range range, const std::function<void(int, int64_t, int64_t)>& use) const;
  // Where chunk `index` has its moment, or its master, of an element.
  size_t moment_offset(int which, int index, int64_t element) const;
  size_t master_offset(int index, int64_t element) const;
  // The queue that reaches the chunk's states between steps.
  Queue& queue_of(int chunk) const;
  // Whether the host updates it in place of the device, which cannot reach it.
  bool is_updated_by_host(int chunk) const;
  std::vector<int> streamed_chunks() const;
  const FlatLayout& flat_of(int chunk) const;
  // Bytes of a chunk's weights, and of its gradients by the config.
  size_t weight_nbytes(int chunk) const;
  size_t grad_nbytes(int chunk) const;
  // Memory for these chunks on their way to the host.
  void reserve_for(const std::vector<int>& chunks);
  // The chunks of a unit in their order.
  std::vector<int> chunks_of(int unit) const;
  void list_work(Weights& weights, const Gradients& gradients);
  std::vector<Launch> list_launches(int unit, Weights& weights, const Gradients& gradients) const;
  HostUpdates::Part part_of(int chunk, Weights& weights, const Gradients& gradients) const;
  Elements elements_of(int chunk, Weights& weights, const Gradients& gradients) const;
  void list_segments(int chunk, const Elements& elements, std::vector<kernels::Segment>& segments,
                     std::vector<int>& groups) const;
  // Takes new weights from the queue's memory to their shard.
  void put_home(std::byte* home, const std::byte* from, size_t nbytes, const Weights& weights);
  // So many units in the order of updates, round and round.
  std::vector<int> updated_from(int unit, int count) const;
  // Those of the unit's flats that come from the host, in their order.
  std::vector<Fetched> fetched_of(int unit, const Weights& weights) const;

  const ModelLayout& layout_;
  int stage_;
  int rank_;
  int moments_;
  Queue& queue_;
  std::unique_ptr<Queue> host_;  // where the device cannot reach all states: reads, writes and updates what it cannot
  std::vector<std::vector<Flat>> units_;
  std::vector<std::vector<int>> groups_;  // of each unit's parameters
  OptimizerConfig optimizer_;
  GradientOptions gradient_options_;
  std::shared_ptr<Ledger> ledger_;
  StateMemory states_;
  std::shared_ptr<Slab> fetched_;  // on the device: weights of one unit that come from the host
  std::vector<UnitWork> work_;     // of each unit, listed when a step first begins
  std::unique_ptr<HostUpdates> host_updates_;
  double host_held_seconds_ = 0;  // for what they made
};

}  // namespace shoal
