// Two hosts, as two network namespaces of this machine that are joined by a cable of their own. The namespaces have no
// names and belong to two holder processes that die with this one, so nothing is left behind, however a test ends.
//
//   TwoHosts hosts;
//   if (const std::string why = hosts.connect(); !why.empty()) GTEST_SKIP() << why;
//   Ranks ranks({.world = 2, .mode = "train", .host = TwoHosts::kFirstAddress, .prefix = hosts.prefix({0, 1})});
#pragma once

#include <sched.h>

#include "process/spawn.h"

namespace shoal::testing {

// A process that lives in a network namespace of its own.
class Holder {
 public:
  Holder() {
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char error = static_cast<char>(unshare(CLONE_NEWNET) == 0 ? 0 : errno);
      if (write(ready[1], &error, 1) != 1 || error != 0) _exit(1);
      for (;;) pause();
    }
    close(ready[1]);
    char error = 0;
    if (read(ready[0], &error, 1) == 1 && error != 0) why_not_ = std::strerror(error);
    close(ready[0]);
  }
  ~Holder() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  std::vector<std::string> prefix() const { return {"nsenter", "-t", std::to_string(pid_), "-n"}; }
  bool run(const std::string& command) const {
    return std::system(("nsenter -t " + std::to_string(pid_) + " -n " + command + " >/dev/null 2>&1").c_str()) == 0;
  }
  pid_t pid() const { return pid_; }
  const std::string& why_not() const { return why_not_; }

 private:
  pid_t pid_ = -1;
  std::string why_not_;
};

class TwoHosts {
 public:
  static constexpr const char* kFirstAddress = "10.213.7.1";
  Holder first, second;

  // "" when the two can talk; otherwise why the test cannot run here.
  std::string connect() {
    for (const Holder* host : {&first, &second}) {
      if (!host->why_not().empty()) return "no network namespace can be made: " + host->why_not();
    }
    const bool done = first.run("ip link add veth0 type veth peer name veth0 netns " + std::to_string(second.pid())) &&
                      first.run("ip addr add 10.213.7.1/24 dev veth0") && first.run("ip link set veth0 up") &&
                      second.run("ip addr add 10.213.7.2/24 dev veth0") && second.run("ip link set veth0 up") &&
                      first.run("ip link set lo up") && second.run("ip link set lo up");
    return done ? "" : "nsenter or ip cannot join two network namespaces here";
  }

  // Cuts the cable: what either host sends is lost, and no connection is closed. Whether it was done.
  bool cut() const { return second.run("ip link set veth0 down"); }

  // Lets programs on the second host see another boot id, as that of another kernel. "", or why it cannot be done here.
  std::string give_second_its_own_kernel() {
    if (!second.run("unshare --mount sh -c '" + std::string(kOtherBootId) + "' sh true")) {
      return "no file of /proc can be covered by another here";
    }
    own_kernel_ = true;
    return "";
  }

  // What starts each rank on its host: `host_of[rank]` is 0 or 1. This object must outlive the ranks.
  std::function<std::vector<std::string>(int)> prefix(std::vector<int> host_of) const {
    return [this, host_of = std::move(host_of)](int rank) {
      if (host_of.at(static_cast<size_t>(rank)) == 0) return first.prefix();
      std::vector<std::string> words = second.prefix();
      if (own_kernel_) words.insert(words.end(), {"unshare", "--mount", "sh", "-c", kOtherBootId, "sh"});
      return words;
    };
  }

 private:
  // `uuid` gives another id to each who reads it.
  static constexpr const char* kOtherBootId =
      "mount --bind /proc/sys/kernel/random/uuid /proc/sys/kernel/random/boot_id && exec \"$@\"";
  bool own_kernel_ = false;
};

}  // namespace shoal::testing
