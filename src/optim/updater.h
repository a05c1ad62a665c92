// The update of a unit's weights: one fused pass over what this rank keeps, by the device, by the host, or by both at
// the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/queue.h"
#include "layout/stage.h"
#include "optim/fetched_weights.h"
#include "optim/group_steps.h"
#include "optim/host_updates.h"
#include "optim/kept_states.h"
#include "optim/lamb_passes.h"
#include "plan/update_split.h"
#include "shard/gradients.h"
#include "shard/weights.h"
#include "shoal/config.h"

namespace shoal {

class Updater {
 public:
  // Updates run on the queue. It and the states outlive this object.
  Updater(const ModelLayout& layout, const std::vector<UnitSpec>& specs, const Config& config, KeptStates& kept,
          Queue& queue, const std::shared_ptr<Ledger>& ledger);
  Updater(const Updater&) = delete;
  Updater& operator=(const Updater&) = delete;

  // Where ranks meet whose optimizer needs norms of whole parameters; before the first step. It outlives this object.
  void meet_over(Group& channel);

  // A step is near: begins to bring states that are not at hand.
  void read_ahead();
  // Between parts of a pass, which states on their way keep step with.
  void pace() { memory_.pace(); }
  // A step has ended, taken or skipped.
  void end_step() { memory_.end_step(); }
  // Lets states that pass through the device's memory have that much of it. Between steps.
  void grow_ring(size_t nbytes);
  // Whether more states pass through the device's memory than it holds at a time, and the host could update some.
  bool can_share() const;
  // How fast states come and the host updates: measured. Between steps.
  UpdateRates measure_rates();
  // Leaves the host such a share of those states that both end together, and says of how many elements. Between steps.
  int64_t share_with_host(const UpdateRates& rates);

  // Whether the host may update its part of a unit before the step is decided; and does so, from when the unit's
  // gradients are whole, with what is assumed of the step; see [Note: updates ahead of the decision] in host_updates.h.
  bool updates_ahead() const { return updates_ahead_; }
  void update_ahead(int unit, const HostUpdates::Decision& assumed, Weights& weights, const Gradients& gradients);
  // Weights, gradients or states change before the step.
  void forget_ahead();
  HostUpdates::Ahead ahead() const { return host_updates_ ? host_updates_->ahead() : HostUpdates::Ahead{}; }

  // A step is decided: the host begins its part of the update. Weights and gradients are the same objects in every
  // call, and nobody else's until each unit is updated.
  void begin_step(const StepConstants& constants, Weights& weights, const Gradients& gradients);
  // Updates this rank's part of the unit's trainable flats, units in their order.
  void update(int unit, const StepConstants& constants, Weights& weights, const Gradients& gradients);
  // How many units further updates should run than weights are needed; see [Note: updated weights go home behind the
  // update] in fetched_weights.h.
  int runs_ahead() const { return runs_ahead_; }
  // What the queue is given later finds the weights of units up to this one, which are updated, where they are kept.
  void need(int unit);
  // An update threw: waits until the host has nothing under way. Weights on their way home get there before their
  // memory goes, and nobody asks for them.
  void abandon_step();

  // Gradients have moved to other memory. Between steps.
  void find_gradients_again() { forget_work(); }

  // How long the queue has stood still for states of the host, or for weights that it updates.
  double held_seconds();
  // Elements whose states the host updates in place of the device.
  int64_t host_updated_numel() const;

 private:
  // What one launch updates.
  struct Launch {
    int chunk = -1;  // of which it updates all or some; -1: of chunks of the unit that are always at hand
    int piece = -1;  // of fetched weights, just that; -1: weights that are on the device
    std::unique_ptr<UpdateList> list;
  };
  // What is done for a unit: launches, and parts of what the host updates.
  struct UnitWork {
    std::vector<Launch> launches;
    int first_part = 0, last_part = 0;  // one past the last
    int last_piece = -1;                // of the launches
    bool home = true;                   // fetched weights, as far as the queue is concerned
  };
  // Where the elements of a chunk have their states, weights and gradients.
  struct Elements {
    std::byte* states = nullptr;
    std::byte* weight = nullptr;
    const std::byte* grad = nullptr;
    DType grad_dtype = DType::f32;
  };

  // Whether the host updates it in place of the device, which cannot reach it.
  bool is_updated_by_host(int chunk) const;
  std::vector<int> streamed_chunks() const;
  // Bytes of a chunk's weights, and of its gradients by the config.
  size_t weight_nbytes(int chunk) const;
  size_t grad_nbytes(int chunk) const;
  // Memory for these chunks on their way to the host, without gradients that are there already.
  void reserve_for(const std::vector<int>& chunks, const HostFlats& gradients_there);
  void forget_work();
  void list_work(Weights& weights, const Gradients& gradients);
  std::vector<Launch> list_launches(int unit, Weights& weights, const Gradients& gradients);
  void launch(const UnitWork& work, const PlacedSteps& placed);
  std::vector<LambPasses::Run> list_runs(int unit, Weights& weights, const Gradients& gradients) const;
  HostUpdates::Part part_of(int chunk, Weights& weights, const Gradients& gradients) const;
  Elements elements_of(int chunk, Weights& weights, const Gradients& gradients) const;
  // Of elements [begin, end) of a chunk, where `elements` are those from `begin` on but for the states.
  void list_segments(int chunk, int64_t begin, int64_t end, const Elements& elements,
                     std::vector<kernels::Segment>& segments, std::vector<int>& groups) const;
  // So many units in the order of updates, round and round.
  std::vector<int> updated_from(int unit, int count) const;
  // Whether the chunk's weights are in host memory, as they are for the update.
  bool has_weights_in_host(int chunk) const;

  const ModelLayout& layout_;
  Stage stage_;
  KeptStates& kept_;
  StateMemory& memory_;  // of kept_
  Queue& queue_;
  std::vector<std::vector<int>> groups_;  // of each unit's parameters
  std::vector<UnitShards> shards_;        // of weights
  bool begins_by_unit_ = false;           // the host's part: weights on disk are at hand for their unit's update only
  int runs_ahead_ = 0;
  int64_t piece_numel_;  // of weights that are fetched, at most
  bool updates_ahead_;
  OptimizerConfig optimizer_;
  GradientOptions gradient_options_;
  std::shared_ptr<Ledger> ledger_;
  std::vector<UnitWork> work_;  // of each unit, listed when a step first begins
  std::unique_ptr<FetchedWeights> fetched_;
  std::unique_ptr<HostUpdates> host_updates_;
  std::unique_ptr<LambPasses> lamb_;  // null: every element is updated by itself
  double held_seconds_ = 0;           // for these two
};

}  // namespace shoal
