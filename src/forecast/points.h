// Measured steps to fit a forecast on: bench/step_times.json. Reading it, and asking the forecast for each. Pure;
// called by bench_step_time_fit and the tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "forecast/step_time.h"

namespace shoal::forecast {

struct Point {
  std::string source;
  std::string name;  // "mpt-7b, 128 x H100, 3200 Gb/s, 6 x 2048"
  bool fits = true;  // false: it only judges
  DecoderShape shape;
  Workload work;
  int64_t accumulation = 1;
  Cluster cluster;
  int world = 1;
  int shard = 0;  // ranks that cut a copy of everything between them; 0: all
  std::string engine;
  double reduce_wire = 1;
  bool autocast = false;  // weights are gathered in fp32, and converted where they are used
  // What is off the GPU.
  double host_states = 0, host_weights = 0;
  bool host_updates = false;
  double ring = 0;
  double seconds = 0;  // measured
};

// Throws shoal::Error that says what is wrong with the file.
std::vector<Point> read_points(std::string_view text, std::string_view origin);

// The same step by the forecast.
StepTime forecast_of(const Point& point, const Calibration& calibration);

}  // namespace shoal::forecast
