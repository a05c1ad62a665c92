// Ranks that were started with different flags, data or checkpoints would train on silently, or wait for each other in
// different places. They compare what they were given before they build anything.
#pragma once

#include <string>
#include <vector>

#include "shoal/group.h"
#include "train/options.h"
#include "train/prepare.h"

namespace shoal::train {

struct Fact {
  std::string name;   // for the message: "--seed"
  std::string value;  // as text
};

// What must be the same on every rank, the config apart (the engine compares that).
std::vector<Fact> facts_of(const TrainOptions& options, const PreparedRun& run);

// Every rank calls it with the same names. Throws on every rank when one differs from rank 0, and says which and in
// what.
void check_agreement(const std::vector<Fact>& facts, Group& world);

// Each rank looks at a part of the tokens, and all say what one of them found.
void check_tokens_together(const PreparedRun& run, Group& world);

}  // namespace shoal::train
