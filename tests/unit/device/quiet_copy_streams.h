// CopyStreams that carry nothing: a base for those of a test, which then say only what they are about.
#pragma once

#include <cstddef>
#include <string>

#include "device/copy_streams.h"

namespace shoal::testing {

class QuietCopyStreams : public CopyStreams {
 public:
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
};

}  // namespace shoal::testing
