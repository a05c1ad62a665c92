// See data_spec.h.
#include "train/data_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

constexpr std::array<std::string_view, 5> kDataKinds = {"text", "tokens", "chat", "prompts", "synthetic"};

std::optional<double> weight_of(const std::string& part) {
  const size_t colon = part.rfind(':');
  if (colon == std::string::npos || colon + 1 == part.size()) return std::nullopt;
  double weight = 0;
  const char* last = part.data() + part.size();
  const auto [end, mistake] = std::from_chars(part.data() + colon + 1, last, weight);
  if (mistake != std::errc() || end != last) return std::nullopt;
  return weight;
}

// What stands between commas. The settings of synthetic have commas between them too, until its weight.
std::vector<std::string> sources_of(const std::string& data) {
  std::vector<std::string> sources;
  for (const std::string& part : split(data, ',')) {
    const bool is_setting = !sources.empty() && sources.back().starts_with("synthetic:") &&
                            !weight_of(sources.back()) && part.find('=') != std::string::npos;
    if (is_setting) {
      sources.back() += "," + part;
    } else {
      sources.push_back(part);
    }
  }
  return sources;
}

DataSpec parse_one(const std::string& text) {
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string kind = text.substr(0, colon);
  if (std::find(kDataKinds.begin(), kDataKinds.end(), kind) == kDataKinds.end()) return {text, "", text};
  return {text, kind, colon < text.size() ? text.substr(colon + 1) : ""};
}

}  // namespace

std::vector<DataSpec> parse_data(const std::string& data) {
  const std::vector<std::string> sources = sources_of(data);
  size_t weighed = 0;
  for (const std::string& source : sources) weighed += weight_of(source).has_value();
  // A path may hold commas.
  if (sources.size() == 1 || weighed == 0) return {parse_one(data)};
  std::vector<DataSpec> specs;
  for (const std::string& source : sources) {
    const std::optional<double> weight = weight_of(source);
    if (!weight) {
      throw Error("--data " + data, fmt::format("\"{}\" has no weight, and another source has one. Write each as "
                                                "SOURCE:WEIGHT, with commas between.",
                                                source));
    }
    specs.push_back(parse_one(source.substr(0, source.rfind(':'))));
    specs.back().weight = *weight;
  }
  return specs;
}

}  // namespace shoal::train
