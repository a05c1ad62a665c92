// CopyStreams that carry nothing and know what the log of waits would call them.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "unit/device/quiet_copy_streams.h"

namespace shoal::testing {

class NamedCopyStreams final : public QuietCopyStreams {
 public:
  explicit NamedCopyStreams(std::shared_ptr<std::string> name) : name_(std::move(name)) {}

  void log_stalls_as(const std::string& what) override { *name_ = what; }

 private:
  std::shared_ptr<std::string> name_;  // shared with the test
};

}  // namespace shoal::testing
