// See reduce.h.
#include "report/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace shoal::report {

namespace {

static_assert(std::endian::native == std::endian::little, "the page reads little-endian numbers");

constexpr size_t kAround = 200;  // steps that are compared with each other
constexpr size_t kFewest = 16;   // fewer say nothing of what is usual

std::string base64(const void* data, size_t nbytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::string text;
  text.reserve((nbytes + 2) / 3 * 4);
  for (size_t i = 0; i < nbytes; i += 3) {
    const size_t left = std::min<size_t>(3, nbytes - i);
    uint32_t three = static_cast<uint32_t>(bytes[i]) << 16;
    if (left > 1) three |= static_cast<uint32_t>(bytes[i + 1]) << 8;
    if (left > 2) three |= bytes[i + 2];
    text += kDigits[three >> 18];
    text += kDigits[three >> 12 & 63];
    text += left > 1 ? kDigits[three >> 6 & 63] : '=';
    text += left > 2 ? kDigits[three & 63] : '=';
  }
  return text;
}

}  // namespace

size_t steps_a_point(size_t steps, size_t most) { return std::max<size_t>(1, (steps + most - 1) / most); }

Points reduce(const std::vector<double>& values, size_t steps_a_point) {
  Points points;
  for (size_t begin = 0; begin < values.size(); begin += steps_a_point) {
    double sum = 0, least = std::numeric_limits<double>::infinity(), most = -least;
    int64_t count = 0;
    for (size_t i = begin; i < std::min(values.size(), begin + steps_a_point); ++i) {
      if (!std::isfinite(values[i])) continue;
      sum += values[i];
      least = std::min(least, values[i]);
      most = std::max(most, values[i]);
      ++count;
    }
    const float none = std::numeric_limits<float>::quiet_NaN();
    points.mean.push_back(count > 0 ? static_cast<float>(sum / static_cast<double>(count)) : none);
    points.least.push_back(count > 0 ? static_cast<float>(least) : none);
    points.most.push_back(count > 0 ? static_cast<float>(most) : none);
  }
  return points;
}

std::string base64_of(const std::vector<float>& values) { return base64(values.data(), values.size() * sizeof(float)); }
std::string base64_of(const std::vector<double>& values) {
  return base64(values.data(), values.size() * sizeof(double));
}

double median_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<Outlier> outliers(const std::vector<double>& values, size_t most, size_t& found) {
  std::vector<Outlier> all;
  for (size_t begin = 0; begin < values.size(); begin += kAround) {
    const size_t end = std::min(values.size(), begin + kAround);
    // A short rest is compared with the steps before it too.
    const size_t from = end - begin < kAround && end > kAround ? end - kAround : begin;
    const std::vector<double> around(values.begin() + static_cast<std::ptrdiff_t>(from),
                                     values.begin() + static_cast<std::ptrdiff_t>(end));
    if (around.size() < kFewest) break;
    const double usual = median_of(around);
    std::vector<double> distances;
    for (const double value : around) distances.push_back(std::fabs(value - usual));
    const double scatter = median_of(distances);
    for (size_t i = begin; i < end; ++i) {
      const double above = values[i] - usual;
      if (std::isfinite(above) && above > 12 * scatter && above > 0.5 * std::fabs(usual)) {
        all.push_back({i, values[i], usual});
      }
    }
  }
  found = all.size();
  if (all.size() > most) {
    const auto farther = [](const Outlier& a, const Outlier& b) { return a.value / a.usual > b.value / b.usual; };
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(most), all.end(), farther);
    all.resize(most);
    std::sort(all.begin(), all.end(), [](const Outlier& a, const Outlier& b) { return a.at < b.at; });
  }
  return all;
}

}  // namespace shoal::report
