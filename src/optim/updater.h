// The optimizer's states on this rank, and the update of a unit's weights: one fused pass over what this rank owns.
// Knows no stage: it owns the range of each flat that the layout gives it, a shard or the whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/queue.h"
#include "layout/stage.h"
#include "shard/gradients.h"
#include "shard/weights.h"
#include "shoal/config.h"

namespace shoal {

// What changes from step to step.
struct StepNumbers {
  int64_t step = 1;  // of the applied steps, this one counted
  double grad_scale = 1;
  std::vector<double> lrs;            // per parameter group
  std::vector<double> weight_decays;  // per parameter group
  double beta1 = 0.9, beta2 = 0.999;
};

class Updater {
 public:
  // States lie in the queue's memory, and updates run on it. The queue outlives this object.
  Updater(const ModelLayout& layout, const std::vector<UnitSpec>& specs, int stage, const OptimizerConfig& config,
          int rank, Queue& queue, std::shared_ptr<Ledger> ledger);

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

  // Updates this rank's part of the unit's trainable flats. Weights and gradients are the same objects in every call.
  void update(int unit, const StepNumbers& numbers, Weights& weights, const Gradients& gradients);

 private:
  struct Flat {
    int64_t begin = 0, end = 0;                // elements of the flat whose states this rank keeps
    size_t master = 0, first = 0, second = 0;  // offsets in the slab
  };

  // Elements of the flat whose weights this rank keeps.
  Range weight_range(int unit, int flat, const Weights& weights) const;
  std::unique_ptr<UpdateList> list_segments(int unit, Weights& weights, const Gradients& gradients) const;
  GroupSteps group_steps(const StepNumbers& numbers) const;
  float* moment(int which, int unit, int flat, int64_t element) const;

  const ModelLayout& layout_;
  int stage_;
  int rank_;
  OptimizerConfig config_;
  int moments_;
  Queue& queue_;
  std::vector<std::vector<Flat>> units_;
  std::vector<std::vector<int>> groups_;  // of each unit's parameters
  std::shared_ptr<Slab> slab_;
  std::vector<std::unique_ptr<UpdateList>> lists_;  // of each unit, made when it is first updated
};

}  // namespace shoal
