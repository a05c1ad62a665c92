// Fits the constants of a forecast on measured points, and says how wrong it is: on them, on each source when it is
// left out and predicted from the others, and on points that no fit has seen. Pure and repeatable: the same points give
// the same constants. Called by bench_step_time_fit and the tests.
#pragma once

#include <string>
#include <vector>

#include "forecast/calibration.h"
#include "forecast/points.h"

namespace shoal::forecast {

// The constants that are fitted. A few dozen points do not settle all of them, so each is held to what is known of it
// from elsewhere (Calibration's own defaults), as loosely as that is known.
struct Knob {
  const char* name;
  double Calibration::*of;
  double least, most;
  double doubt;  // such a share off costs as much as 1 % of misfit
};
const std::vector<Knob>& knobs();

// The mean over sources of the mean of |log(predicted / measured)|, rounded off near 0.
double misfit(const std::vector<Point>& points, const Calibration& calibration);
// What a fit makes small: that, and what the constants are off from where they are held.
double cost(const std::vector<Point>& points, const Calibration& calibration);

Calibration fit(const std::vector<Point>& points, const Calibration& begin);

struct Judged {
  const Point* point = nullptr;
  double predicted = 0;  // seconds
  double error() const { return predicted / point->seconds - 1; }
};
// Of all points, by these constants.
std::vector<Judged> judge(const std::vector<Point>& points, const Calibration& calibration);
// Of the points that fit, each source by constants that were fitted on the others.
std::vector<Judged> judge_left_out(const std::vector<Point>& points, const Calibration& begin);

double median_error(const std::vector<Judged>& judged);
double worst_error(const std::vector<Judged>& judged);

}  // namespace shoal::forecast
