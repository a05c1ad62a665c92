// What `shoal doctor` says of this machine: one line a subject, with a remedy where something is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal::doctor {

enum class Health : uint8_t {
  good,
  poor,     // works, slower or smaller than it could
  missing,  // not there; what needs it will not run
};

struct Finding {
  std::string subject;  // "GPU 0", "io_uring"
  Health health = Health::good;
  std::string text;
  std::string remedy;  // "" when nothing is wrong
};

// Whether training can run here, on a GPU or on the CPU: neither no GPU nor no driver for one is in the way.
bool lets_train(const std::vector<Finding>& findings);

// As lines for a reader, and as JSON for a program.
std::string to_text(const std::vector<Finding>& findings);
std::string to_json(const std::vector<Finding>& findings);

}  // namespace shoal::doctor
