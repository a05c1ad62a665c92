#include "forecast/calibration.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "forecast/fit.h"

namespace shoal::forecast {
namespace {

std::vector<Point> points_of_the_fit() {
  const std::string path = SHOAL_SOURCE_DIR "/bench/step_times.json";
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::vector<Point> points = read_points(text.str(), path);
  std::erase_if(points, [](const Point& point) { return !point.fits; });
  return points;
}

// Where no constant can be moved by 2 % and make the cost less is where the fit ends: its last steps are smaller.
TEST(Calibration, TheConstantsAreThoseOfTheFit) {
  const std::vector<Point> points = points_of_the_fit();
  ASSERT_GE(points.size(), 30u);
  const double least = cost(points, fitted_calibration());
  for (const Knob& knob : knobs()) {
    for (const double factor : {1.02, 1 / 1.02}) {
      Calibration moved = fitted_calibration();
      moved.*knob.of = std::clamp(moved.*knob.of * factor, knob.least, knob.most);
      EXPECT_GE(cost(points, moved), least - 2e-5)
          << knob.name << " times " << factor
          << ": run bench_step_time_fit and paste what it prints into calibration.cpp";
    }
  }
  EXPECT_LT(cost(points, fitted_calibration()), cost(points, Calibration{}));
}

TEST(Calibration, TheErrorOnItsPointsIsAsPublished) {
  const std::vector<Point> points = points_of_the_fit();
  const std::vector<Judged> judged = judge(points, fitted_calibration());
  EXPECT_LT(median_error(judged), 0.13);
  EXPECT_LT(worst_error(judged), 0.40);
}

TEST(Calibration, AGpuWithoutEnoughPowerIsSlower) {
  Calibration by;
  by.tflops_a_watt = 1;
  EXPECT_DOUBLE_EQ(power_share(by, 312e12, 400), 1) << "A100";
  EXPECT_NEAR(power_share(by, 989e12, 700), std::cbrt(700 / 989.0), 1e-12) << "H100";
  EXPECT_LT(power_share(by, 989e12, 500), power_share(by, 989e12, 700));
  EXPECT_DOUBLE_EQ(power_share(by, 989e12, 0), 1) << "not known";
  EXPECT_DOUBLE_EQ(power_share(by, 0, 700), 1);
}

}  // namespace
}  // namespace shoal::forecast
