// What a user writes after --data, taken apart: one source, or several with weights.
#pragma once

#include <string>
#include <vector>

namespace shoal::train {

struct DataSpec {
  std::string text;  // as written, without the weight
  std::string kind;  // "text", "tokens", "chat", "prompts", "synthetic"; "": a path alone
  std::string rest;  // what stands behind the colon; of a path alone the path
  double weight = 1;
};

// KIND:PATH, PATH, or several of these, each as SOURCE:WEIGHT, with commas between. Throws shoal::Error when some have
// a weight and some do not. Settings of synthetic go on to its weight. A kind that does not exist is not looked at
// here.
std::vector<DataSpec> parse_data(const std::string& data);

}  // namespace shoal::train
