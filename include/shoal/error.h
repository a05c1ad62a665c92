// The one exception type a user of Shoal meets: something they can fix, or something that failed elsewhere.
// Message form: "[place] what is wrong, with the values. What to do."
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace shoal {

class Error : public std::runtime_error {
 public:
  Error(std::string_view place, std::string_view message);

  // Where it went wrong, without the brackets: "config zero_optimization.stage", "comm rank 1".
  const std::string& place() const { return place_; }

 private:
  std::string place_;
};

}  // namespace shoal
