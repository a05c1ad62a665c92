#include "comm/host/no_pipe_signal.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

namespace shoal {
namespace {

// The errno of a write to a connection whose other end is closed; SIGPIPE comes with it, unless it is held back.
int write_to_nobody() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return -1;
  close(ends[1]);
  const ssize_t written = write(ends[0], "x", 1);
  const int why = written < 0 ? errno : 0;
  close(ends[0]);
  return why;
}

bool blocks_pipe_signal() {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return sigismember(&blocked, SIGPIPE) == 1;
}

TEST(NoPipeSignal, AWriteToAPeerThatIsGoneFailsAndTheProcessLives) {
  const auto before = signal(SIGPIPE, SIG_DFL);  // who started this program may ignore it
  for (int turn = 0; turn < 3; ++turn) {
    const NoPipeSignal held_back;
    EXPECT_EQ(write_to_nobody(), EPIPE);
  }
  EXPECT_FALSE(blocks_pipe_signal());
  EXPECT_EXIT(write_to_nobody(), ::testing::KilledBySignal(SIGPIPE), "") << "without it the process ends";
  signal(SIGPIPE, before);
}

TEST(NoPipeSignal, AThreadThatIsMadeInsideNeverGetsIt) {
  std::thread later;
  {
    const NoPipeSignal held_back;
    later = std::thread([] {
      EXPECT_TRUE(blocks_pipe_signal());
      EXPECT_EQ(write_to_nobody(), EPIPE);
    });
  }
  later.join();
}

}  // namespace
}  // namespace shoal
