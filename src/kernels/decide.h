// The decision of a step, made where the model lives: the norm of all gradients, whether the step is taken, what
// gradients are multiplied by, and how the loss scale goes on. One body (decide_body.h) serves the host and the GPU, so
// both give the same bits.
#pragma once

#include <cstdint>

#include "layout/sum_tree.h"

namespace shoal::kernels {

// How the loss scale of fp16 moves, by DeepSpeed's rules.
struct ScaleRules {
  bool dynamic = false;  // false: it never moves
  double min_scale = 1;
  int64_t window = 1000;
  int64_t hysteresis = 1;    // overflows that are borne before the scale is halved, until a good window refills them
  bool consecutive = false;  // any good step refills the hysteresis
};

struct ScaleState {
  double scale = 1;
  int64_t hysteresis_left = 1;
  int64_t step = 0;
  int64_t last_overflow = -1;
};

struct StepRules {
  ScaleRules scale;
  double gradient_clipping = 0;  // 0: none
  bool takes_any = false;        // a norm that is not finite skips nothing, and clips nothing
};

// What lasts from step to step.
struct StepProgress {
  ScaleState scale;
  int64_t applied = 0;  // steps so far
  int64_t skipped = 0;
  float backward_scale = 1;  // what the loss of a micro-step is multiplied by: the scale
};

// What became of one step.
struct StepRecord {
  int applied = 0;           // 0: skipped, the norm is not finite and the rules ask for one that is
  int scale_exhausted = 0;   // the loss scale would have to fall below its minimum
  int64_t first_bad = -1;    // the first flat whose squares are not finite; -1: none, or only their sum is not
  double grad_norm = 0;      // before clipping, without the loss scale
  double grad_scale = 0;     // what gradients are multiplied by: 1 / (loss scale * clip factor)
  double loss_scale = 1;     // that the step was taken with
  int64_t steps_before = 0;  // that had been applied
  StepProgress after;
};

// All pointers are memory of where the decision is made.
struct Decision {
  const double* tops = nullptr;  // sums of squares of all ranks, rank by rank: see layout/norm_tops.h
  int64_t rank_places = 0;       // of one rank
  const int* rank_of_part = nullptr;
  int64_t ranks = 1;
  const FlatTops* flat_tops = nullptr;
  int64_t flats = 0;
  StepRules rules;
  StepProgress* progress = nullptr;  // goes on to the next step
  StepRecord* record = nullptr;
};

// The constants of a step's formulas depend on how many steps were applied before, which the host may not know yet: it
// gives those for each number that can be, and the decision picks. Step is a struct of kernels/update.h.
template <class Step>
struct StepChoice {
  const Step* choices = nullptr;  // `groups` entries for each number
  int64_t first_steps_before = 0;
  int64_t count = 1;  // of numbers, from the first one on
  int64_t groups = 0;
  Step* picked = nullptr;  // `groups` entries, with the decision's grad_scale
};

void decide(const Decision& decision);

}  // namespace shoal::kernels
