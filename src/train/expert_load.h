// What the routers of a mixture of experts did in a step, for the user.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/language_model.h"
#include "train/metrics_file.h"
#include "train/step_exchange.h"

namespace shoal::train {

struct ExpertLoad {
  // Of each layer with experts: the tokens of its busiest expert, over what each would get if all got as many. 1: all
  // do; experts / per_token: all tokens go to the same ones.
  std::vector<double> busiest;
  int64_t idle = 0;  // experts of all layers that no token went to
};

// tokens: of the layers one after the other, so many experts each.
ExpertLoad load_of(const std::vector<float>& tokens, int64_t experts);

// What the forwards of a step told, on their way to its metrics.
class StepExperts {
 public:
  // Of a micro-step; of a model without experts there is nothing to tell.
  void add(const models::ForwardReport& report);
  // Every rank calls it, once the device has done the step.
  void share(StepExchange& exchange, int64_t leaves, StepMetrics& metrics) const;

 private:
  std::vector<models::ForwardReport> reports_;  // in host memory
};

// "experts: 8 of 128 for each token, in 48 layers; the loss that balances them counts 0.001"; "" without experts.
std::string experts_line(const models::ExpertsInfo& experts);

}  // namespace shoal::train
