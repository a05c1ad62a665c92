// Wires that carry nothing and know what the log of waits would call them.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "device/wires.h"

namespace shoal::testing {

class NamedWires final : public Wires {
 public:
  explicit NamedWires(std::shared_ptr<std::string> name) : name_(std::move(name)) {}

  void log_holds_as(const std::string& what) override { *name_ = what; }

  void make_room(int) override {}
  std::string pin(std::byte*, size_t) override { return ""; }
  void follow_queue() override {}
  void mark_queue() override {}
  void follow_mark() override {}
  void copy_in(int, std::byte*, const std::byte*, size_t, int) override {}
  void hold_queue(int) override {}
  void hold_queue_out(int) override {}
  void mark_used(int) override {}
  void copy_out(int, std::byte*, const std::byte*, size_t) override {}
  void wait_in(int) override {}
  void wait_out(int) override {}
  void wait_used(int) override {}
  double newly_held_seconds() override { return 0; }

 private:
  std::shared_ptr<std::string> name_;  // shared with the test
};

}  // namespace shoal::testing
