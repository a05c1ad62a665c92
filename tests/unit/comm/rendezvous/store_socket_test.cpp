#include "comm/rendezvous/store_socket.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/rendezvous/c10d_store.h"
#include "process/spawn.h"

namespace shoal {
namespace {

using namespace std::chrono_literals;

bool answers(const char* address, int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, address, &at.sin_addr);
  const bool connected = ::connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0;
  ::close(fd);
  return connected;
}

TEST(StoreSocket, IsBoundToTheAddressThatItIsToldAndToNoOther) {
  const int port = testing::free_port();
  const StoreSocket socket = open_store_socket("127.0.0.2", port);
  ASSERT_GE(socket.fd, 0) << socket.why_none;
  ASSERT_EQ(::listen(socket.fd, 8), 0);
  EXPECT_TRUE(answers("127.0.0.2", port));
  EXPECT_FALSE(answers("127.0.0.1", port));
  ::close(socket.fd);
}

TEST(StoreSocket, IsNotOpenedWhereThePortIsTaken) {
  const int port = testing::free_port();
  const StoreSocket first = open_store_socket("127.0.0.1", port);
  ASSERT_EQ(::listen(first.fd, 8), 0);
  const StoreSocket second = open_store_socket("127.0.0.1", port);
  EXPECT_EQ(second.fd, -1);
  EXPECT_EQ(second.why_none, "");
  ::close(first.fd);
}

TEST(StoreSocket, SaysWhyItIsNotOpened) {
  EXPECT_EQ(open_store_socket("192.0.2.1", 29500).why_none, "192.0.2.1 is no address of this host");
  EXPECT_EQ(open_store_socket("no-such-host.invalid", 29500).why_none, "no-such-host.invalid has no address here");
}

TEST(StoreSocket, AStoreIsServedThereAndASecondOneOfTheProcessSharesIt) {
  const int port = testing::free_port();
  const auto store = [port](bool serve) {
    return connect_tcp_store({"127.0.0.1", port, serve, 5000ms, "comm rank 0"});
  };
  const auto first = store(true);
  EXPECT_TRUE(answers("127.0.0.1", port));
  EXPECT_FALSE(answers("127.0.0.2", port)) << "c10d by itself listens on every address";
  const auto second = store(true);
  first->set("a", "1");
  EXPECT_EQ(second->get("a"), "1");
  EXPECT_EQ(store(false)->get("a"), "1");
}

}  // namespace
}  // namespace shoal
