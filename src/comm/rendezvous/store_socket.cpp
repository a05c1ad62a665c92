// See store_socket.h.
#include "comm/rendezvous/store_socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>

namespace shoal {

namespace {

bool is_loopback(const addrinfo& info) {
  if (info.ai_family == AF_INET) {
    const auto* address = reinterpret_cast<const sockaddr_in*>(info.ai_addr);
    return (ntohl(address->sin_addr.s_addr) >> 24) == 127;
  }
  return info.ai_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(info.ai_addr)->sin6_addr);
}

bool names_loopback(std::string_view host) {
  return host.starts_with("localhost") || host.starts_with("127.") || host == "::1";
}

// 0, or an errno.
int bind_to(const addrinfo& info, int& fd) {
  fd = ::socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int on = 1;
  if (::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      ::bind(fd, info.ai_addr, info.ai_addrlen) == 0) {
    return 0;
  }
  const int failed = errno;
  ::close(fd);
  fd = -1;
  return failed;
}

}  // namespace

StoreSocket open_store_socket(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) {
    return {-1, fmt::format("{} has no address here", host)};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(list, freeaddrinfo);
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) {
    // A host's own name often leads to 127.0.1.1 on that host, and to its network on all others.
    if (is_loopback(*info) && !names_loopback(host)) {
      return {-1, fmt::format("{} leads to this host's loopback here, and elsewhere it may not", host)};
    }
    StoreSocket socket;
    const int failed = bind_to(*info, socket.fd);
    if (failed == 0 || failed == EADDRINUSE) return socket;
  }
  return {-1, fmt::format("{} is no address of this host", host)};
}

}  // namespace shoal
