// See descendants.h.
#include "launch/descendants.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace shoal::launch {

namespace {

// The parent of a process: the fourth word of /proc/<pid>/stat, after a name in parentheses that may hold anything.
pid_t parent_of(const std::filesystem::path& folder) {
  std::ifstream file(folder / "stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 4 > text.size()) return -1;
  return static_cast<pid_t>(std::atoi(text.c_str() + name_end + 4));  // ") S 123"
}

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (parent_of(entry.path()) == getpid()) found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

}  // namespace

Descendants::Descendants() {
  for (const pid_t child : children()) spare(child);
  prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper_);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Descendants::~Descendants() { prctl(PR_SET_CHILD_SUBREAPER, was_subreaper_); }

int Descendants::end_all(std::chrono::milliseconds grace) {
  using Clock = std::chrono::steady_clock;
  const auto kill_at = Clock::now() + grace;
  const auto give_up_at = kill_at + std::chrono::seconds(10);  // a process stuck in the kernel cannot be waited for
  std::set<pid_t> seen;
  while (Clock::now() < give_up_at) {
    bool any = false;
    for (const pid_t child : children()) {
      if (spared_.count(child) != 0 || waitpid(child, nullptr, WNOHANG) == child) continue;
      any = true;
      if (seen.insert(child).second) kill(child, SIGTERM);
      if (Clock::now() >= kill_at) kill(child, SIGKILL);
    }
    if (!any) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return static_cast<int>(seen.size());
}

}  // namespace shoal::launch
