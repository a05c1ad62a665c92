// The transfers beneath Gloo's collectives, and their making (gloo_factory).
#include "comm/host/gloo_link.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace shoal {
namespace {

using namespace std::chrono_literals;
using How = LinkBroken::How;

std::array<std::shared_ptr<GlooLink>, 2> make_pair_of_links() {
  auto store = make_hash_store();
  std::array<std::shared_ptr<GlooLink>, 2> links;
  std::thread other([&] { links[1] = GlooLink::connect(*store, "link", {1, 2, 20s, "127.0.0.1", ""}); });
  links[0] = GlooLink::connect(*store, "link", {0, 2, 20s, "127.0.0.1", ""});
  other.join();
  return links;
}

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

}  // namespace
}  // namespace shoal
