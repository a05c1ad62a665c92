// Fits the constants of `shoal plan --time` on bench/step_times.json and prints the table of its errors, in Markdown:
//   bench_step_time_fit bench/step_times.json [--as-compiled]
// --as-compiled: the errors of the constants that are compiled in, without a fit.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "forecast/fit.h"
#include "shoal/error.h"

namespace {

using namespace shoal::forecast;

void print_table(const char* title, const std::vector<Judged>& judged) {
  fmt::print(
      "\n{}: median {:.1f} %, worst {:.1f} %\n\n| source | step | measured, s | predicted, s | error "
      "|\n|---|---|---:|---:|---:|\n",
      title, median_error(judged) * 100, worst_error(judged) * 100);
  for (const Judged& each : judged) {
    fmt::print("| {} | {} | {:.3f} | {:.3f} | {:+.1f} % |\n", each.point->source, each.point->name, each.point->seconds,
               each.predicted, each.error() * 100);
  }
}

int run(const char* path, bool as_compiled) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const std::vector<Point> points = read_points(text.str(), path);
  std::vector<Point> seen, unseen;
  for (const Point& point : points) (point.fits ? seen : unseen).push_back(point);
  const Calibration begin = {};
  const Calibration constants = as_compiled ? fitted_calibration() : fit(seen, begin);
  fmt::print("Constants, misfit {:.4f}:\n\n", misfit(seen, constants));
  for (const Knob& knob : knobs())
    fmt::print("                                   .{} = {:.4g},\n", knob.name, constants.*knob.of);
  print_table("Points of the fit", judge(seen, constants));
  print_table("Points that no fit has seen", judge(unseen, constants));
  if (!as_compiled) print_table("Each source left out, predicted from the others", judge_left_out(seen, begin));
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count < 2 || (count > 2 && std::strcmp(words[2], "--as-compiled") != 0)) {
    fmt::print(stderr, "usage: bench_step_time_fit bench/step_times.json [--as-compiled]\n");
    return 2;
  }
  try {
    return run(words[1], count > 2);
  } catch (const shoal::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
