// How long a step takes: the layout, the schedule of gathers, the order of reductions and the routes that the engine
// runs by, carried out on a timeline in place of a GPU. All ranks do the same at the same time, so one of them is
// simulated, however many there are. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "forecast/calibration.h"
#include "forecast/cluster.h"
#include "forecast/decoder_shape.h"
#include "forecast/offload_work.h"
#include "forecast/work.h"
#include "layout/flat_layout.h"
#include "layout/stage.h"
#include "schedule/gather_schedule.h"

namespace shoal::forecast {

// In what an engine differs from another one to whom this forecast is asked. The defaults are Shoal's.
struct Manner {
  bool two_channels = true;  // gathers do not queue behind reductions
  bool exchanges = true;     // a reduction is an exchange of strips, summed in order; false: the library's ring
  bool waits = false;        // for each reduction where it begins (overlap_comm: false)
  int reduce_slots = 2;      // units whose gradients may be on their way
  double gather_wire = 1;    // bytes of what travels, of those that the dtype has: less where it is quantized
  double reduce_wire = 1;
  // Weights are gathered for backward from a second copy that is cut over so much less: hpZ.
  std::optional<Over> backward_from = {};
};

struct StepQuestion {
  ModelLayout layout;
  GradientOptions gradients;
  GatherLimits limits;
  Manner manner = {};
  std::vector<UnitSeconds> units = {};  // of computing; as many as the layout has
  OffloadWork offload = {};             // empty: nothing is off the GPU
  double update_nbytes = 26;            // of GPU memory that the update of an element reads and writes
  Cluster cluster = {};
  Calibration calibration = {};
};

struct StepTime {
  double seconds = 0;
  // Which add up to it:
  double compute = 0;
  double gathers = 0;     // for which computing stood still, or was slower
  double reductions = 0;  // the same, the norm too
  double update = 0;
  double offload = 0;  // stood still for host, bus or disk

  double gather_busy = 0;     // that gathers took in all, hidden or not
  double reduction_busy = 0;  // and reductions
  double host_nbytes = 0;     // that leave a host over its network
};

StepTime step_time(const StepQuestion& question);

// What a step means in the words of a benchmark.
struct Throughput {
  double tokens = 0;  // a second, of all ranks
  double tokens_a_gpu = 0;
  double model_flops = 0;  // a second and GPU: 6 a matrix element and token, and causal attention; recompute is none
  double mfu = 0;          // of the GPU's peak in the dtype of the weights
};
Throughput throughput(const StepTime& time, const DecoderShape& shape, const Workload& work, int64_t micro_steps,
                      int data_ranks, const Cluster& cluster);

}  // namespace shoal::forecast
