// See held_port.h.
#include "launch/held_port.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "shoal/error.h"

namespace shoal::launch {

HeldPort::HeldPort() {
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t nbytes = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (fd_ < 0 || setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd_, any, sizeof(address)) != 0 || getsockname(fd_, any, &nbytes) != 0) {
    const std::string reason = strerror(errno);
    if (fd_ >= 0) close(fd_);
    throw Error("launch", fmt::format("no free port for the ranks to meet at: {}. Free one.", reason));
  }
  port_ = ntohs(address.sin_port);
}

HeldPort::~HeldPort() { close(fd_); }

}  // namespace shoal::launch
