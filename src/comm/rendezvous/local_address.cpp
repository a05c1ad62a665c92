// See local_address.h.
#include "comm/rendezvous/local_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/text.h"

namespace shoal {

std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> found(list, freeifaddrs);
  std::vector<Interface> result;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char text[NI_MAXHOST];
    const socklen_t nbytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(each->ifa_addr, nbytes, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0) {
      result.push_back({each->ifa_name, text});
    }
  }
  return result;
}

std::string interface_of(const std::string& address, const std::vector<Interface>& found) {
  const auto has = [&](const Interface& each) { return each.address == address; };
  const auto at = std::find_if(found.begin(), found.end(), has);
  return at == found.end() ? "" : at->name;
}

std::string address_of(const std::string& interface, const std::vector<Interface>& found) {
  const auto is = [&](const Interface& each) { return each.name == interface; };
  const auto at = std::find_if(found.begin(), found.end(), is);
  return at == found.end() ? "" : at->address;
}

std::string to_text(const std::vector<Interface>& found) {
  std::vector<std::string> words;
  for (const Interface& each : found) words.push_back(fmt::format("{} ({})", each.name, each.address));
  return join(words, ", ");
}

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
