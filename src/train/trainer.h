// `shoal train` on one rank: takes the steps of a prepared run, evaluates, saves, and says how it goes.
#pragma once

#include "train/options.h"
#include "train/prepare.h"

namespace shoal::train {

// Trains what was prepared; with more than one rank, joins the world that the launcher's environment describes. Returns
// the exit code: 0 when the steps are done, 1 when the last save failed and the run was told to go on, 128 + signal
// when a signal ended it.
int train(const TrainOptions& options, const PreparedRun& run);

}  // namespace shoal::train
