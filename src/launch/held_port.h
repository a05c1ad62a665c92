// A TCP port of this host that stays ours until rank 0 listens on it.
#pragma once

namespace shoal::launch {

// Binds a free port and keeps it bound without listening. Nobody else is given the port meanwhile, by bind or by
// connect, while a server that sets SO_REUSEADDR, as torch's store does, can still bind it and listen.
class HeldPort {
 public:
  HeldPort();  // throws Error when there is none
  ~HeldPort();
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;

  int port() const { return port_; }

 private:
  int fd_ = -1;
  int port_ = 0;
};

}  // namespace shoal::launch
