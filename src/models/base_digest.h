// A number for the frozen weights of a model, by names, shapes and values: what a checkpoint without them keeps of
// them, so that it is put on no other base. Read from where the weights come from, in fp32, whatever the run's
// precision.
#pragma once

#include <string>
#include <vector>

#include "shoal/group.h"
#include "shoal/unit.h"

namespace shoal::models {

// 16 hexadecimal digits, the same on every rank and at every number of them. Every rank calls it; each reads its part
// of the weights once, on all its threads.
std::string digest_frozen(const std::vector<Unit>& units, Group& world);

}  // namespace shoal::models
