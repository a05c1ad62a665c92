#include "launch/held_port.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace shoal::launch {
namespace {

struct Server {
  int fd = -1;
  bool listens = false;

  // As torch's store listens: on every address of both families.
  explicit Server(int port, bool reuse) {
    fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    const int off = 0;
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (reuse) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    address.sin6_addr = in6addr_any;
    listens = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 && listen(fd, 1) == 0;
  }
  ~Server() { close(fd); }
};

TEST(HeldPort, LetsAServerThatReusesAddressesListenAndNoOther) {
  const HeldPort held;
  ASSERT_GT(held.port(), 0);
  if (Server(held.port(), true).fd < 0) GTEST_SKIP() << "this machine has no IPv6";
  EXPECT_TRUE(Server(held.port(), true).listens);
  EXPECT_FALSE(Server(held.port(), false).listens);
}

TEST(HeldPort, TwoNeverHoldTheSame) {
  const HeldPort first, second;
  EXPECT_NE(first.port(), second.port());
}

}  // namespace
}  // namespace shoal::launch
