// See door.h.
#include "comm/rendezvous/door.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

namespace shoal {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kBacklog = 1024;  // nobody takes the calls; ranks that knock need a place each

struct Address {
  sockaddr_storage bytes{};
  socklen_t nbytes = 0;
  int family() const { return bytes.ss_family; }
};

std::optional<Address> numeric(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &list) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(list, freeaddrinfo);
  Address address;
  std::memcpy(&address.bytes, list->ai_addr, list->ai_addrlen);
  address.nbytes = list->ai_addrlen;
  return address;
}

std::optional<Address> address_of_door(const std::string& at) {
  const size_t colon = at.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = at.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  return numeric(host, at.substr(colon + 1));
}

// One that knocks at a door.
class Caller {
 public:
  Caller(const std::string& door, const std::string& from) {
    const auto to = address_of_door(door);
    if (!to) return;
    fd_ = socket(to->family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd_ < 0) return;
    const auto own = numeric(from, "0");  // as the connections that failed
    if (own && own->family() == to->family()) {
      (void)bind(fd_, reinterpret_cast<const sockaddr*>(&own->bytes), own->nbytes);
    }
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&to->bytes), to->nbytes) != 0) {
      problem_ = errno;
      waits_ = errno == EINPROGRESS;
    }
  }
  ~Caller() {
    if (fd_ >= 0) close(fd_);
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  bool waits() const { return waits_; }
  pollfd watched() const { return {waits_ ? fd_ : -1, POLLOUT, 0}; }
  void settle() {
    socklen_t nbytes = sizeof(problem_);
    problem_ = 0;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &problem_, &nbytes);
    waits_ = false;
  }
  std::string problem(std::chrono::milliseconds limit) const {
    if (waits_) return fmt::format("no answer within {} s", std::chrono::duration<double>(limit).count());
    return problem_ == 0 ? "" : std::strerror(problem_);
  }

 private:
  int fd_ = -1, problem_ = 0;
  bool waits_ = false;
};

}  // namespace

Door::Door(const std::string& address) {
  const auto own = numeric(address, "0");
  if (!own) return;
  fd_ = socket(own->family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd_ < 0) return;
  Address bound;
  bound.nbytes = sizeof(bound.bytes);
  char port[NI_MAXSERV];
  const bool is_open = bind(fd_, reinterpret_cast<const sockaddr*>(&own->bytes), own->nbytes) == 0 &&
                       listen(fd_, kBacklog) == 0 &&
                       getsockname(fd_, reinterpret_cast<sockaddr*>(&bound.bytes), &bound.nbytes) == 0 &&
                       getnameinfo(reinterpret_cast<sockaddr*>(&bound.bytes), bound.nbytes, nullptr, 0, port,
                                   sizeof(port), NI_NUMERICSERV) == 0;
  if (!is_open) return;
  at_ = own->family() == AF_INET6 ? fmt::format("[{}]:{}", address, port) : fmt::format("{}:{}", address, port);
}

Door::~Door() {
  if (fd_ >= 0) close(fd_);
}

std::vector<std::string> knock(const std::vector<std::string>& doors, const std::string& address,
                               std::chrono::milliseconds limit) {
  std::vector<std::unique_ptr<Caller>> callers;
  for (const std::string& door : doors) callers.push_back(std::make_unique<Caller>(door, address));
  const auto deadline = Clock::now() + limit;
  for (;;) {
    std::vector<pollfd> watched;
    bool any_waits = false;
    for (const auto& caller : callers) {
      watched.push_back(caller->watched());
      any_waits = any_waits || caller->waits();
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (!any_waits || left.count() <= 0) break;
    if (poll(watched.data(), watched.size(), static_cast<int>(left.count())) <= 0) continue;
    for (size_t i = 0; i < callers.size(); ++i) {
      if (watched[i].fd >= 0 && watched[i].revents != 0) callers[i]->settle();
    }
  }
  std::vector<std::string> problems;
  for (const auto& caller : callers) problems.push_back(caller->problem(limit));
  return problems;
}

}  // namespace shoal
