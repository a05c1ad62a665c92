// The transfers beneath Gloo's collectives, and their making (gloo_factory).
#include "comm/host/gloo_link.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <functional>
#include <thread>
#include <vector>

namespace {

// A thread that sets this finds its cable cut at its next write, after that long.
thread_local std::chrono::milliseconds writes_fail_after{0};
std::atomic<int> failed_writes{0};
// What a thread does before each of its writes, by how many it has done since it set this; returns an error or 0.
thread_local std::function<int(int)> before_write;
thread_local int writes = 0;

}  // namespace

// Gloo's writes end here and then in the C library.
extern "C" ssize_t writev(int fd, const iovec* pieces, int count) {
  if (writes_fail_after.count() > 0) {
    std::this_thread::sleep_for(writes_fail_after);
    ++failed_writes;
    errno = ETIMEDOUT;
    return -1;
  }
  if (const int error = before_write ? before_write(writes++) : 0; error != 0) {
    errno = error;
    return -1;
  }
  static const auto next = reinterpret_cast<ssize_t (*)(int, const iovec*, int)>(dlsym(RTLD_NEXT, "writev"));
  return next(fd, pieces, count);
}

namespace shoal {
namespace {

using namespace std::chrono_literals;
using How = LinkBroken::How;

template <size_t kWorld>
std::array<std::shared_ptr<GlooLink>, kWorld> make_links() {
  auto store = make_hash_store();
  std::array<std::shared_ptr<GlooLink>, kWorld> links;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < static_cast<int>(kWorld); ++rank) {
    ranks.emplace_back([&, rank] {
      links[rank] = GlooLink::connect(*store, "link", {rank, static_cast<int>(kWorld), 20s, "127.0.0.1", ""});
    });
  }
  for (auto& rank : ranks) rank.join();
  return links;
}

std::array<std::shared_ptr<GlooLink>, 2> make_pair_of_links() { return make_links<2>(); }

Deadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

TEST(GlooLink, TransfersMatchByPeerTagAndOrder) {
  auto links = make_pair_of_links();
  int sent[3] = {11, 22, 33}, got[3] = {};
  links[0]->begin();
  links[1]->begin();
  auto receiving = links[1]->post_receives({{0, &got[0], 4, 1}, {0, &got[1], 4, 1}, {0, &got[2], 4, 2}});
  auto sending = links[0]->post_sends({{1, &sent[2], 4, 2}, {1, &sent[0], 4, 1}, {1, &sent[1], 4, 1}});
  receiving.wait(in(10s));
  sending.wait(in(10s));
  EXPECT_EQ(got[0], 11);
  EXPECT_EQ(got[1], 22);
  EXPECT_EQ(got[2], 33);
}

LinkBroken broken_by(GlooLink::Posted& posted, Deadline deadline) {
  try {
    posted.wait(deadline);
  } catch (const LinkBroken& broken) {
    return broken;
  }
  return {How::late, -1, "not broken"};
}

TEST(GlooLink, SaysHowAndByWhomItBroke) {
  int got = 0;
  {
    auto links = make_pair_of_links();
    links[0]->begin();
    auto receiving = links[0]->post_receives({{1, &got, 4, 1}});
    links[1]->close();
    const LinkBroken broken = broken_by(receiving, in(10s));
    EXPECT_EQ(broken.how, How::closed);
    EXPECT_EQ(broken.peer, 1);
  }
  {
    auto links = make_pair_of_links();
    links[0]->begin();
    auto receiving = links[0]->post_receives({{1, &got, 4, 1}});
    EXPECT_EQ(broken_by(receiving, in(100ms)).how, How::late);
  }
  {
    auto links = make_pair_of_links();
    links[0]->begin();
    auto receiving = links[0]->post_receives({{1, &got, 4, 1}});
    std::thread closer([&] {
      std::this_thread::sleep_for(50ms);
      links[0]->close();
    });
    EXPECT_EQ(broken_by(receiving, in(10s)).how, How::interrupted);
    closer.join();
    links[0]->end();
    EXPECT_THROW(links[0]->begin(), LinkBroken);
  }
}

TEST(GlooLink, WaitsUntilTheDeadlineAndThenSaysLate) {
  for (int round = 0; round < 20; ++round) {
    auto links = make_pair_of_links();
    int got = 0;
    links[0]->begin();
    auto receiving = links[0]->post_receives({{1, &got, 4, 1}});
    const Deadline deadline = in(5ms) + round * 50us;  // no whole number of milliseconds
    const LinkBroken broken = broken_by(receiving, deadline);
    EXPECT_GE(std::chrono::steady_clock::now(), deadline);
    EXPECT_EQ(broken.how, How::late) << broken.what();
    EXPECT_EQ(broken.peer, 1);
  }
}

// While a transfer to a peer that is cut off is begun, another peer announces transfers of its own: neither may wait
// for the other. A thread that is stuck stays so, hence none is joined.
TEST(GlooLink, APeerThatIsCutOffIsFoundWhileAnotherAnnouncesTransfers) {
  static int kept = 0;
  static char bytes[64];
  auto* links = new auto(make_links<3>());
  auto* found = new std::atomic<int>(-1);
  for (const auto& link : *links) link->begin();
  const int before = failed_writes;
  std::thread([links, found] {
    writes_fail_after = 300ms;
    try {
      auto sending = (*links)[0]->post_sends({{2, &kept, 4, 1}});
      sending.wait(in(10s));
    } catch (const LinkBroken& broken) {
      *found = broken.peer;
    }
    writes_fail_after = 0ms;
  }).detach();
  std::this_thread::sleep_for(100ms);
  for (int tag = 2; tag < 10; ++tag) (*links)[1]->post_sends({{0, bytes, sizeof(bytes), tag}});
  for (const auto deadline = in(20s); *found < 0 && std::chrono::steady_clock::now() < deadline;) {
    std::this_thread::sleep_for(10ms);
  }
  ASSERT_EQ(*found, 2) << "begins a transfer for ever";
  EXPECT_EQ(failed_writes, before + 1);
  delete found;
  delete links;
}

// The peer waits for the transfer already, so that its bytes are written at once, and is gone by then.
TEST(GlooLink, ATransferEndsWhenThePeerGoesWhileItIsWritten) {
  auto links = make_pair_of_links();
  static char bytes[64];
  char got[64];
  for (const auto& link : links) link->begin();
  auto receiving = links[1]->post_receives({{0, got, sizeof(got), 1}});
  std::this_thread::sleep_for(100ms);  // for the news of it
  writes = 0;
  before_write = [&](int write) {
    if (write != 1) return 0;  // the first announces the transfer
    links[1]->close();
    links[1]->end();
    receiving = {};  // holds the connection too
    return ECONNRESET;
  };
  auto sending = links[0]->post_sends({{1, bytes, sizeof(bytes), 1}});
  before_write = nullptr;
  EXPECT_EQ(writes, 2);
  const auto began = std::chrono::steady_clock::now();
  const LinkBroken broken = broken_by(sending, in(30s));
  EXPECT_EQ(broken.how, How::closed) << broken.what();
  EXPECT_EQ(broken.peer, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
}

}  // namespace
}  // namespace shoal
