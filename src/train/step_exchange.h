// What ranks tell each other once a step: their losses, and whether one was asked to stop. So every rank knows the loss
// of the global batch, and all stop after the same step.
#pragma once

#include <memory>
#include <vector>

#include "layout/mesh.h"
#include "shoal/group.h"

namespace shoal::train {

struct StepNews {
  double mean_loss = 0;  // the same bits on every rank and at every stage
  int stop_signal = 0;   // that some rank received; 0: none
  double waited_seconds = 0;
};

class StepExchange {
 public:
  StepExchange(Group& world, const Mesh& mesh)
      : channel_(world.channel("train")), counted_(mesh.first_of_data_ranks()) {}

  // Every rank calls it with its losses in the order of micro-steps, as many on each rank. The mean is summed in fp64
  // in the order of the global batch: micro-step by micro-step, data ranks in order.
  StepNews share(const std::vector<double>& losses, int stop_signal);

 private:
  std::unique_ptr<Group> channel_;
  std::vector<int> counted_;  // one rank of each data rank
};

}  // namespace shoal::train
