// What `--device` may say, of the verbs that compute.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "base/text.h"
#include "cli/verbs.h"

namespace shoal::cli {

// As torch spells it; people say gpu too.
inline std::string device_named(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name == "gpu" || name.starts_with("gpu:")) name.replace(0, 3, "cuda");
  const bool numbered =
      name.starts_with("cuda:") && name.size() > 5 && name.find_first_not_of("0123456789", 5) == std::string::npos;
  if (name == "auto" || name == "cpu" || name == "cuda" || numbered) return name;
  const std::string nearest = nearest_word(name, {"auto", "cpu", "cuda"});
  throw UsageError("--device", fmt::format("{} is not a device.{} Use auto, cpu, cuda or cuda:<number>.", name,
                                           nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest)));
}

}  // namespace shoal::cli
