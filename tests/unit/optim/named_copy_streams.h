// Wires that carry nothing and know what the log of waits would call them.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "unit/device/quiet_wires.h"

namespace shoal::testing {

class NamedWires final : public QuietWires {
 public:
  explicit NamedWires(std::shared_ptr<std::string> name) : name_(std::move(name)) {}

  void log_holds_as(const std::string& what) override { *name_ = what; }

 private:
  std::shared_ptr<std::string> name_;  // shared with the test
};

}  // namespace shoal::testing
