#include "comm/rendezvous/c10d_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "process/spawn.h"
#include "shoal/error.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

TcpStoreOptions at_port(int port, bool serve) { return {"127.0.0.1", port, serve, 1500ms, "comm rank 1"}; }

TEST(C10dStore, GetsWhatWasSetAndNothingElse) {
  auto store = make_hash_store();
  EXPECT_FALSE(store->get("a"));
  store->set("a", "1");
  EXPECT_EQ(store->get("a"), "1");
  EXPECT_FALSE(store->under("part")->get("a"));
}

TEST(C10dStore, TheFirstToSetOnceWins) {
  auto store = make_hash_store();
  EXPECT_EQ(store->set_once("a", "1"), "1");
  EXPECT_EQ(store->set_once("a", "2"), "1");
}

TEST(C10dStore, ServesOtherClientsOverTcp) {
  const int port = testing::free_port();
  auto server = connect_tcp_store(at_port(port, true));
  auto client = connect_tcp_store(at_port(port, false));
  client->set("a", "1");
  EXPECT_EQ(server->get("a"), "1");
  EXPECT_EQ(server->set_once("b", "2"), "2");
  EXPECT_EQ(client->set_once("b", "3"), "2");
}

TEST(C10dStore, AServerThatDoesNotComeIsAnErrorThatSaysWhere) {
  const int port = testing::free_port();
  try {
    connect_tcp_store(at_port(port, false));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("[comm rank 1] no rendezvous store at 127.0.0.1:" + std::to_string(port)));
  }
}

// The kernel takes connections for a process that hangs.
TEST(C10dStore, AServerThatHangsIsAnErrorThatSaysWho) {
  const int port = testing::free_port();
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd, 8), 0);
  try {
    connect_tcp_store(at_port(port, false));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("[comm rank 1] no rendezvous store at 127.0.0.1:" + std::to_string(port)));
    EXPECT_THAT(error.what(), HasSubstr("answered within 1.5 s: rank 0 did not come, hangs, or cannot be reached"));
  }
  close(fd);
}

TEST(C10dStore, AServerThatWentIsAnError) {
  const int port = testing::free_port();
  auto server = connect_tcp_store(at_port(port, true));
  auto client = connect_tcp_store(at_port(port, false));
  server.reset();
  EXPECT_THROW((client->get("a"), client->get("a")), Error);
}

}  // namespace
}  // namespace shoal
