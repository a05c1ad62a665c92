// What ranks tell each other once a step: their losses, whether one was asked to stop, and whether a save behind
// training is written. So every rank knows the loss of the global batch, and all stop after the same step. The loss is
// a fold over leaves (see docs/glossary.md), which no number of ranks shows in.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layout/mesh.h"
#include "shoal/group.h"

namespace shoal::train {

// What a rank has spent so far, in seconds from the beginning of the run: wait_comm_ms and the others of metrics.jsonl.
struct RankTimes {
  double comm = 0, host = 0, disk = 0, data = 0;
};

// What a rank says beside its losses.
struct RankSays {
  int stop_reason = 0;     // see stop_wish.h; 0: it is not to stop
  bool save_ready = true;  // its part of a save behind training needs no waiting for
  RankTimes times = {};
};

struct StepNews {
  double mean_loss = 0;    // over the leaves: the same bits on every rank, at every stage and number of ranks
  int stop_reason = 0;     // of some rank that is to stop, see stop_wish.h; 0: none is
  bool save_ready = true;  // on all ranks
  double waited_seconds = 0;
  std::vector<RankTimes> ranks;  // of each
};

class StepExchange {
 public:
  StepExchange(Group& world, const Mesh& mesh)
      : channel_(world.channel("train")), counted_(mesh.first_of_data_ranks()) {}

  // Every rank calls it with its losses in the order of micro-steps, as many on each rank. Leaf v ran on data rank
  // v mod D at micro-step v div D, and the losses of the first `leaves` are summed in fp64 in their order. What a rank
  // ran beyond them has weight 0.
  StepNews share(const std::vector<double>& losses, int64_t leaves, const RankSays& own = {});
  // Numbers of all ranks whose losses count, added up in place; whole numbers below 2^24 exactly.
  void add_up(std::vector<float>& numbers);
  // Only why to stop, where no losses are shared.
  int share_stop(int stop_reason);

 private:
  std::unique_ptr<Group> channel_;
  std::vector<int> counted_;  // one rank of each data rank
};

}  // namespace shoal::train
