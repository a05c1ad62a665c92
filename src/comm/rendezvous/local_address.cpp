// See local_address.h.
#include "comm/rendezvous/local_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

namespace shoal {

std::string local_address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &list) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(list, freeaddrinfo);
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) {
    const int fd = socket(info->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    // Connecting a datagram socket sends nothing; the system only chooses the route, and with it the own address.
    sockaddr_storage own{};
    socklen_t own_nbytes = sizeof(own);
    char text[NI_MAXHOST];
    const bool known =
        connect(fd, info->ai_addr, info->ai_addrlen) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_nbytes) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), own_nbytes, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0;
    close(fd);
    if (known) return text;
  }
  return "";
}

}  // namespace shoal
