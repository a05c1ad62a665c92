// A run of `shoal train --log csv` that takes no step before the test lets it: two files that it logs into, one after
// the other, are FIFOs, and rank 0 waits at the end of each step until somebody reads the rows. So a test kills at a
// known step, however busy the machine is.
//
//   StepGate gate(folder / "run");           // before the run begins
//   Command run(train_words(..., {"--log", "csv"}));
//   gate.pass(3);                            // steps 1 to 3 end, metrics and all; rank 0 comes to the end of step 4
//   kill(rank, SIGKILL);
//   gate.open();                             // from here on nothing waits: the logs are files
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>

namespace shoal::testing {

class StepGate {
 public:
  explicit StepGate(const std::string& out) {
    std::filesystem::create_directories(out + "/csv");
    for (size_t i = 0; i < kNames.size(); ++i) {
      paths_[i] = out + "/csv/" + kNames[i];
      if (::mkfifo(paths_[i].c_str(), 0600) != 0) ADD_FAILURE() << paths_[i] << ": no FIFO";
    }
  }
  ~StepGate() { open(); }
  StepGate(const StepGate&) = delete;
  StepGate& operator=(const StepGate&) = delete;

  // Lets so many steps end, and waits until they have. False when the run does not come to them.
  bool pass(int steps) {
    for (int step = 0; step < steps; ++step) {
      // When the row of the one is read the writer goes to the other, which is not open yet. So it never writes into a
      // FIFO that is just being closed.
      for (const std::string& path : paths_) {
        const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        const bool came = fd >= 0 && read_row(fd);
        ::close(fd);
        if (!came) return false;
      }
    }
    return true;
  }

  // Who waits goes on, and who comes later finds no FIFO. The ends stay open, since somebody may be writing.
  void open() {
    for (std::string& path : paths_) {
      if (path.empty()) continue;
      [[maybe_unused]] const int held = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
      ::unlink(path.c_str());
      path.clear();
    }
  }

 private:
  static constexpr std::array kNames = {"Train_Samples_train_loss.csv", "Train_Samples_lr.csv"};
  static constexpr int kLimitMs = 200'000;  // reached only when the test fails

  // Until the writer has closed it.
  static bool read_row(int fd) {
    bool came = false;
    for (;;) {
      pollfd awaited{fd, POLLIN, 0};
      if (::poll(&awaited, 1, kLimitMs) != 1) return false;
      std::array<char, 512> buffer;
      const ssize_t got = ::read(fd, buffer.data(), buffer.size());
      if (got == 0 && came) return true;
      came = came || got > 0;
    }
  }

  std::array<std::string, kNames.size()> paths_;
};

}  // namespace shoal::testing
