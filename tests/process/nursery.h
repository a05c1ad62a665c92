// The process that the ranks of a test program are forked from: a program with torch takes half a second of the
// processor to load, and is loaded once instead of once a rank. Ranks of spawn.h asks it for each rank; what must be
// loaded anew (another environment for the loader, a command before it) is started the plain way.
//
// A rank is a child of the test, not of the nursery: the nursery forks twice, the one between ends, and the test is the
// reaper of what is left so. The nursery itself runs nothing but this, and has one thread.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

namespace shoal::testing {

inline constexpr const char* kNurseryFlag = "--rank-nursery=";

// What a rank needs: its mode, the whole of its environment, and where it writes, says that it is up and waits to
// begin.
struct RankRequest {
  std::string mode;
  std::vector<std::string> settings;
  std::array<int, 3> fds = {-1, -1, -1};  // output, up, go
};

inline constexpr size_t kMostRequestNbytes = 128 << 10;

// The test's end.
class Nursery {
 public:
  // The one of this process, started at the first call; not `works()` where it cannot be had.
  static Nursery& own() {
    static Nursery nursery;
    return nursery;
  }
  bool works() const { return socket_ >= 0; }

  // The rank's process, a child of this one; -1 where the nursery is gone or the request too large.
  pid_t start(const RankRequest& request) {
    std::string text = std::to_string(getpid()) + '\0' + request.mode + '\0';
    for (const std::string& setting : request.settings) text += setting + '\0';
    if (text.size() > kMostRequestNbytes) return -1;
    iovec part{text.data(), text.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(request.fds))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(request.fds));
    std::memcpy(CMSG_DATA(header), request.fds.data(), sizeof(request.fds));
    pid_t rank = -1;
    if (sendmsg(socket_, &message, MSG_NOSIGNAL) < 0 || recv(socket_, &rank, sizeof(rank), 0) != sizeof(rank))
      return -1;
    return rank;
  }

 private:
  Nursery() {
    int ends[2];
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
      return;
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length <= 0) return;
    self[length] = '\0';
    const std::string flag = kNurseryFlag + std::to_string(ends[1]);
    std::vector<std::string> settings = {"OMP_NUM_THREADS=1", "TORCH_CPP_LOG_LEVEL=ERROR"};
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string setting = *entry;
      if (setting.rfind("OMP_NUM_THREADS=", 0) != 0 && setting.rfind("TORCH_CPP_LOG_LEVEL=", 0) != 0) {
        settings.push_back(setting);
      }
    }
    std::vector<char*> envp;
    for (std::string& setting : settings) envp.push_back(setting.data());
    envp.push_back(nullptr);
    std::array<char*, 3> argv = {self, const_cast<char*>(flag.c_str()), nullptr};
    const pid_t nursery = fork();
    if (nursery == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      fcntl(ends[1], F_SETFD, 0);
      execve(self, argv.data(), envp.data());
      _exit(127);
    }
    close(ends[1]);
    socket_ = ends[0];
    pid_t ready = -1;  // 0: it has one thread
    if (recv(socket_, &ready, sizeof(ready), 0) == sizeof(ready) && ready == 0) return;
    close(socket_);
    socket_ = -1;
  }

  int socket_ = -1;
};

inline bool receive(int socket, std::string& text, std::array<int, 3>& fds) {
  text.resize(kMostRequestNbytes);
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(fds))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t nbytes = recvmsg(socket, &message, 0);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (nbytes <= 0 || header == nullptr) return false;
  text.resize(static_cast<size_t>(nbytes));
  std::memcpy(fds.data(), CMSG_DATA(header), sizeof(fds));
  return true;
}

// [Note: how a rank that was forked ends]
// When a program ends, libtorch takes its registries apart: in a fork a fifth of a second, most of it for copies of
// pages that it shared until then. Such a rank ends after its own handlers and static objects, those of Shoal among
// them, and before the ones of the libraries: what is registered first is called last, and this comes before all of the
// program's.
inline int code_of_fork = -1;  // its exit code, when it ends

[[gnu::constructor(101), gnu::used]] static void end_forks_before_libraries() {
  std::atexit([] {
    if (code_of_fork < 0) return;
    std::fflush(nullptr);
    _exit(code_of_fork);
  });
}

// In a rank, first thing: its outputs and environment. Returns its mode.
inline std::string become_rank(const std::string& text, const std::array<int, 3>& fds) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size(); at = text.find('\0', at) + 1) words.emplace_back(text.c_str() + at);
  const pid_t test = std::stoi(words[0]);
  while (getppid() != test) usleep(200);  // until the one between has ended
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  clearenv();
  for (size_t at = 2; at < words.size(); ++at) {
    const size_t equals = words[at].find('=');
    if (equals != std::string::npos) setenv(words[at].substr(0, equals).c_str(), words[at].c_str() + equals + 1, 1);
  }
  setenv("TEST_UP_FD", std::to_string(fds[1]).c_str(), 1);
  setenv("TEST_GO_FD", std::to_string(fds[2]).c_str(), 1);
  dup2(fds[0], STDOUT_FILENO);
  dup2(fds[0], STDERR_FILENO);
  close(fds[0]);
  return words[1];
}

// The nursery's end. Returns in each rank, with the rank's mode; the nursery itself ends when the test does.
inline std::string serve_ranks(int socket) {
  const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
  const pid_t ready = std::distance(begin(tasks), end(tasks)) == 1 ? 0 : -1;
  if (send(socket, &ready, sizeof(ready), MSG_NOSIGNAL) < 0 || ready != 0) _exit(0);
  std::string text;
  std::array<int, 3> fds{};
  while (receive(socket, text, fds)) {
    int pipe_of_pid[2];
    if (pipe(pipe_of_pid) != 0) _exit(1);
    const pid_t between = fork();
    if (between == 0) {
      const pid_t rank = fork();
      if (rank == 0) {
        for (const int fd : {socket, pipe_of_pid[0], pipe_of_pid[1]}) close(fd);
        return become_rank(text, fds);
      }
      if (write(pipe_of_pid[1], &rank, sizeof(rank)) != sizeof(rank)) _exit(1);
      _exit(0);
    }
    close(pipe_of_pid[1]);
    pid_t rank = -1;
    if (read(pipe_of_pid[0], &rank, sizeof(rank)) != sizeof(rank)) rank = -1;
    close(pipe_of_pid[0]);
    waitpid(between, nullptr, 0);  // from here on the rank is the test's child
    for (const int fd : fds) close(fd);
    if (send(socket, &rank, sizeof(rank), MSG_NOSIGNAL) < 0) break;
  }
  _exit(0);
}

}  // namespace shoal::testing
