// See browser.h.
#include "report/browser.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "shoal/error.h"

extern char** environ;

namespace shoal::report {

namespace {

namespace fs = std::filesystem;
constexpr std::chrono::seconds kLimit{60};

// A folder of this process, gone with it.
class OwnFolder {
 public:
  OwnFolder() {
    std::string name = (fs::temp_directory_path() / "shoal-report-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw Error("report", fmt::format("no folder can be made as {}. Set TMPDIR to one with space.", name));
    }
    path_ = name;
  }
  ~OwnFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

// The exit code, or -1 when it was ended after the limit, with all that it had started.
int run_quietly(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    posix_spawn_file_actions_addopen(&files, fd, "/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY, 0);
  }
  posix_spawnattr_t own_group;
  posix_spawnattr_init(&own_group);
  posix_spawnattr_setflags(&own_group, POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int failed = posix_spawn(&pid, argv[0], &files, &own_group, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&own_group);
  if (failed != 0) return 127;
  const auto until = std::chrono::steady_clock::now() + kLimit;
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > until) {
      ::kill(-pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      return -1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace

std::string find_browser() {
  if (const char* named = std::getenv("SHOAL_CHROMIUM"); named != nullptr && *named != '\0') return named;
  const char* path = std::getenv("PATH");
  for (const char* name : {"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}) {
    std::stringstream folders(path != nullptr ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');) {
      const std::string file = folder + "/" + name;
      if (!folder.empty() && ::access(file.c_str(), X_OK) == 0) return file;
    }
  }
  return "";
}

void write_png(const std::string& svg, const std::string& path, const Picture& picture, const std::string& browser) {
  const OwnFolder folder;
  std::ofstream page(folder / "figure.html", std::ios::binary);
  page << "<!DOCTYPE html><meta charset=\"utf-8\"><style>body{margin:0;background:#fff}</style>" << svg;
  page.close();
  const fs::path made = folder / "figure.png";
  std::vector<std::string> words = {browser,
                                    "--headless",
                                    "--disable-gpu",
                                    "--hide-scrollbars",
                                    "--no-first-run",
                                    "--user-data-dir=" + (folder / "profile").string(),
                                    "--screenshot=" + made.string(),
                                    fmt::format("--window-size={},{}", picture.width, picture.height),
                                    fmt::format("--force-device-scale-factor={}", picture.scale)};
  if (::geteuid() == 0) words.emplace_back("--no-sandbox");  // Chromium has none for root; the page is our own
  words.push_back("file://" + (folder / "figure.html").string());
  const int code = run_quietly(words);
  std::error_code failed;
  if (!fs::is_regular_file(made, failed) || fs::file_size(made, failed) == 0) {
    throw Error("--png", fmt::format("{} made no picture ({}). Is it a Chromium? Else use --svg.", browser,
                                     code < 0 ? "it took more than a minute" : fmt::format("it ended with {}", code)));
  }
  fs::copy_file(made, path, fs::copy_options::overwrite_existing, failed);
  if (failed) throw Error("--png " + path, fmt::format("cannot be written: {}.", failed.message()));
}

}  // namespace shoal::report
