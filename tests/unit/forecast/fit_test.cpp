#include "forecast/fit.h"

#include <gtest/gtest.h>

#include "unit/forecast/shapes.h"

namespace shoal::forecast {
namespace {

// Steps of a small model, as long as these constants make them.
std::vector<Point> made_by(const Calibration& truth) {
  std::vector<Point> points;
  for (const int world : {1, 2, 4}) {
    for (const int64_t batch : {1, 4}) {
      Point point;
      point.source = world == 1 ? "one" : "more";
      point.engine = "shoal";
      point.shape = testing::llama_7b();
      point.shape.layers = 2;
      point.work = {.batch = batch, .time = 1024};
      point.cluster = testing::four_gpus();
      point.world = world;
      point.seconds = forecast_of(point, truth).seconds;
      points.push_back(point);
    }
  }
  return points;
}

TEST(Fit, FindsWhatMadeThePoints) {
  Calibration truth;
  truth.matmul = 0.8;
  truth.between = 0.68;
  const std::vector<Point> points = made_by(truth);
  const Calibration found = fit(points, {});
  EXPECT_LT(cost(points, found), cost(points, {}));
  EXPECT_LT(worst_error(judge(points, found)), 0.05);
  EXPECT_NEAR(found.matmul, truth.matmul, 0.04);
}

TEST(Fit, IsRepeatable) {
  const std::vector<Point> points = made_by({});
  const Calibration once = fit(points, {}), again = fit(points, {});
  for (const Knob& knob : knobs()) EXPECT_EQ(once.*knob.of, again.*knob.of) << knob.name;
}

TEST(Fit, JudgesASourceByTheOthersAlone) {
  std::vector<Point> points = made_by({});
  for (Point& point : points) {
    if (point.source == "more") point.seconds *= 1.5;
  }
  const std::vector<Judged> left_out = judge_left_out(points, {});
  ASSERT_EQ(left_out.size(), points.size());
  for (const Judged& each : left_out) {
    if (each.point->source == "more") {
      EXPECT_LT(each.error(), -0.25) << "the fit has not seen them";
    }
  }
}

TEST(Fit, MediansAndWorstOfNoneOddAndEven) {
  EXPECT_EQ(median_error({}), 0);
  EXPECT_EQ(worst_error({}), 0);
  std::vector<Point> points(3);
  for (Point& point : points) point.seconds = 1;
  std::vector<Judged> judged = {{&points[0], 1.1}, {&points[1], 0.7}, {&points[2], 1.2}};
  EXPECT_NEAR(median_error(judged), 0.2, 1e-12);
  EXPECT_NEAR(worst_error(judged), 0.3, 1e-12);
  judged.pop_back();
  EXPECT_NEAR(median_error(judged), 0.2, 1e-12);
}

TEST(Fit, NoPointsCostNothing) { EXPECT_EQ(misfit({}, {}), 0); }

}  // namespace
}  // namespace shoal::forecast
