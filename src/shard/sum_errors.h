// What rounding took from sums that travel in blocks, flat by flat, until it is given back: see [Note: error feedback]
// in kernels/blocks.h. A rank keeps those of the parts that it adds up for its group. They are of this run alone: a
// checkpoint has none, and they begin at zero when one is loaded or weights are written.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/slab.h"
#include "kernels/blocks.h"
#include "layout/flat_layout.h"
#include "layout/stage.h"
#include "shoal/group.h"

namespace shoal {

// zeropp_loco_param.
struct ErrorRule {
  float keep = 0;     // err_beta
  int64_t reset = 0;  // reset_T: reductions of a flat after which its errors begin again from zero; 0: never
};

class SumErrors {
 public:
  SumErrors() = default;
  SumErrors(const ModelLayout& layout, const GradientOptions& options, const ErrorRule& rule, Group& channel,
            const std::shared_ptr<Ledger>& ledger);

  // For the next reduction of the flat; without memory where it has no errors.
  kernels::ErrorFeedback feed_back(int unit, int flat);
  void forget();

 private:
  struct Flat {
    size_t offset = 0;
    bool is_kept = false;
    int64_t fed_back = 0;  // reductions since they were zero
  };
  ErrorRule rule_;
  std::vector<std::vector<Flat>> units_;
  std::shared_ptr<Slab> memory_;  // shared with nobody; a slab is handed out so
};

}  // namespace shoal
