// What is drawn of a run with more steps than a page can hold: buckets of steps, each with the least, the most and the
// mean of a column. And which steps stand out. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shoal::report {

inline constexpr size_t kMostPoints = 20'000;  // up to so many steps each is a point

// How many steps make a point.
size_t steps_a_point(size_t steps, size_t most = kMostPoints);

struct Points {
  std::vector<float> mean, least, most;  // NaN where no value of the bucket is finite
};
Points reduce(const std::vector<double>& values, size_t steps_a_point);

// Little-endian, in base64, as the page's script reads it.
std::string base64_of(const std::vector<float>& values);
std::string base64_of(const std::vector<double>& values);

struct Outlier {
  size_t at = 0;  // index of the step
  double value = 0, usual = 0;
};
// Values far above the median of the steps around them: by twelve times what those scatter, and by half of it. The
// farthest `most` of them, in the order of steps; `found` counts all.
std::vector<Outlier> outliers(const std::vector<double>& values, size_t most, size_t& found);

// 0 for none.
double median_of(std::vector<double> values);

}  // namespace shoal::report
