// See fit.h.
#include "forecast/fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace shoal::forecast {

const std::vector<Knob>& knobs() {
  static const std::vector<Knob> kKnobs = {{"matmul", &Calibration::matmul, 0.5, 0.95, 0.1},
                                           {"tflops_a_watt", &Calibration::tflops_a_watt, 0.5, 2.5, 0.3},
                                           {"half_rows", &Calibration::half_rows, 20, 600, 0.5},
                                           {"attention", &Calibration::attention, 0.2, 0.9, 0.2},
                                           {"inside", &Calibration::inside, 0.4, 0.95, 0.2},
                                           {"between", &Calibration::between, 0.4, 0.95, 0.15},
                                           {"shared", &Calibration::shared, 0.02, 0.35, 0.5},
                                           {"elementwise", &Calibration::elementwise, 0.6, 1.8, 0.2}};
  return kKnobs;
}

double misfit(const std::vector<Point>& points, const Calibration& calibration) {
  constexpr double kRound = 0.03;
  struct Sum {
    double errors = 0;
    int count = 0;
  };
  std::map<std::string, Sum> by_source;
  for (const Point& point : points) {
    if (!point.fits) continue;
    const double off = std::log(forecast_of(point, calibration).seconds / point.seconds);
    Sum& sum = by_source[point.source];
    sum.errors += std::sqrt(off * off + kRound * kRound);
    ++sum.count;
  }
  double all = 0;
  for (const auto& [name, sum] : by_source) all += sum.errors / sum.count;
  return by_source.empty() ? 0 : all / static_cast<double>(by_source.size());
}

double cost(const std::vector<Point>& points, const Calibration& calibration) {
  double held = 0;
  for (const Knob& knob : knobs()) {
    const double off = std::log(calibration.*knob.of / (Calibration{}.*knob.of)) / knob.doubt;
    held += 0.01 * off * off;
  }
  return misfit(points, calibration) + held;
}

// One constant after the other, a step up or down; smaller steps when none of them helps.
Calibration fit(const std::vector<Point>& points, const Calibration& begin) {
  Calibration best = begin;
  double least = cost(points, best);
  for (double step = 0.2; step > 0.004; step /= 2) {
    for (int round = 0; round < 12; ++round) {
      const double before = least;
      for (const Knob& knob : knobs()) {
        for (const double factor : {1 + step, 1 / (1 + step)}) {
          Calibration tried = best;
          tried.*knob.of = std::clamp(best.*knob.of * factor, knob.least, knob.most);
          if (tried.*knob.of == best.*knob.of) continue;
          const double found = cost(points, tried);
          if (found >= least) continue;
          least = found;
          best = tried;
        }
      }
      if (before - least < 1e-5) break;
    }
  }
  return best;
}

std::vector<Judged> judge(const std::vector<Point>& points, const Calibration& calibration) {
  std::vector<Judged> judged;
  for (const Point& point : points) judged.push_back({&point, forecast_of(point, calibration).seconds});
  return judged;
}

std::vector<Judged> judge_left_out(const std::vector<Point>& points, const Calibration& begin) {
  std::vector<std::string> sources;
  for (const Point& point : points) {
    if (point.fits && std::find(sources.begin(), sources.end(), point.source) == sources.end())
      sources.push_back(point.source);
  }
  std::vector<Judged> judged;
  for (const std::string& source : sources) {
    std::vector<Point> others;
    for (const Point& point : points) {
      if (point.fits && point.source != source) others.push_back(point);
    }
    const Calibration fitted = fit(others, begin);
    for (const Point& point : points) {
      if (point.fits && point.source == source) judged.push_back({&point, forecast_of(point, fitted).seconds});
    }
  }
  return judged;
}

double median_error(const std::vector<Judged>& judged) {
  if (judged.empty()) return 0;
  std::vector<double> errors;
  for (const Judged& each : judged) errors.push_back(std::abs(each.error()));
  std::sort(errors.begin(), errors.end());
  const size_t half = errors.size() / 2;
  return errors.size() % 2 == 1 ? errors[half] : (errors[half - 1] + errors[half]) / 2;
}

double worst_error(const std::vector<Judged>& judged) {
  double worst = 0;
  for (const Judged& each : judged) worst = std::max(worst, std::abs(each.error()));
  return worst;
}

}  // namespace shoal::forecast
