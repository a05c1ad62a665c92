// See host_copy_streams.h.
#include "device/host_copy_streams.h"

#include <cstring>

namespace shoal {

namespace {

class HostCopyStreams final : public CopyStreams {
 public:
  void make_room(int) override {}
  std::string pin(std::byte*, size_t) override { return ""; }
  void follow_queue() override {}
  void mark_queue() override {}
  void follow_mark() override {}
  void copy_in(int, std::byte* to, const std::byte* from_host, size_t nbytes, int) override {
    std::memcpy(to, from_host, nbytes);
  }
  void hold_queue(int) override {}
  void hold_queue_out(int) override {}
  void mark_used(int) override {}
  void copy_out(int, std::byte* to_host, const std::byte* from, size_t nbytes) override {
    std::memcpy(to_host, from, nbytes);
  }
  void wait_in(int) override {}
  void wait_out(int) override {}
  void wait_used(int) override {}
  double newly_held_seconds() override { return 0; }
};

}  // namespace

std::unique_ptr<CopyStreams> make_host_copy_streams() { return std::make_unique<HostCopyStreams>(); }

}  // namespace shoal
