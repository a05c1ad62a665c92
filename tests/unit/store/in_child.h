// Runs part of a test in a forked process: one that may be killed, or that mounts a small disk for itself.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <string>

namespace shoal::testing {

// Runs `body` in a child. Returns its exit code: what body returned, or 99 when an expectation failed there or it
// threw; 128 + signal when it was killed. The caller has no threads at that moment.
inline int in_child(const std::function<int()>& body) {
  std::cout.flush();
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 99;
    try {
      code = body();
    } catch (const std::exception& error) {
      std::cout << "in the child: " << error.what() << std::endl;
    }
    if (::testing::Test::HasFailure()) code = 99;
    std::cout.flush();
    std::fflush(nullptr);
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

inline bool write_text(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  return written;
}

// In a child: mounts a file system at `folder` that only this process sees. False where that is not allowed.
inline bool mount_for_this_process(const std::string& type, const std::string& folder, const std::string& options) {
  if (::unshare(CLONE_NEWNS) != 0) {
    const std::string uid = std::to_string(::getuid());
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    if (!write_text("/proc/self/uid_map", "0 " + uid + " 1")) return false;
  }
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("none", folder.c_str(), type.c_str(), 0, options.c_str()) == 0;
}

constexpr int kCannotMount = 77;

}  // namespace shoal::testing
