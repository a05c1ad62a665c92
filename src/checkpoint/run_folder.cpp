// See run_folder.h.
#include "checkpoint/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <mutex>
#include <random>
#include <set>

#include "checkpoint/durable_file.h"
#include "checkpoint/file_lengths.h"
#include "shoal/error.h"

namespace shoal::checkpoint {

namespace fs = std::filesystem;

namespace {

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  return names;
}

std::string joined(const std::string& folder, const std::string& name) { return (fs::path(folder) / name).string(); }

std::string fresh_id() {
  std::random_device random;
  return fmt::format("{}-{:08x}{:08x}", ::getpid(), random(), random());
}

// A process may have a save behind training and another one beside it.
std::mutex own_mutex;           // held to use own_ids, and from reading `latest` to replacing it
std::set<std::string> own_ids;  // of the saves of this process that live

bool is_own(const std::string& path) {
  const std::lock_guard lock(own_mutex);
  return std::ranges::any_of(own_ids, [&](const std::string& id) { return path.ends_with(id); });
}

// Whether a temporary folder or pointer is a living save's: this process's, or one that holds its lock.
bool is_living(const std::string& path) {
  if (is_own(path)) return true;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool locked = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return locked;
}

// What `latest` names; "" for nothing, or what cannot be read.
std::string named_latest(const std::string& folder) {
  const std::string path = joined(folder, "latest");
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  try {
    std::string name = read_text(path);
    name.erase(name.find_last_not_of(" \r\n\t") + 1);
    return name;
  } catch (const Error&) {
    return "";
  }
}

// An open file under a lock, while it lives. Where a file system has no locks it is only open.
class Locked {
 public:
  explicit Locked(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ >= 0) ::flock(fd_, LOCK_EX | LOCK_NB);
  }
  ~Locked() {
    if (fd_ >= 0) ::close(fd_);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  int fd_;
};

}  // namespace

SaveId::SaveId() : text_(fresh_id()) {
  const std::lock_guard lock(own_mutex);
  own_ids.insert(text_);
}
SaveId::~SaveId() {
  const std::lock_guard lock(own_mutex);
  own_ids.erase(text_);
}

std::string step_name(int64_t step) { return fmt::format("step-{:08}", step); }

std::optional<int64_t> step_of_name(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (name.rfind(kPrefix, 0) != 0) return std::nullopt;
  int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || at != end || step < 0 || step_name(step) != name) return std::nullopt;
  return step;
}

std::vector<std::string> steps_in(const std::string& folder) {
  std::vector<std::string> names;
  for (std::string& name : names_in(folder)) {
    if (step_of_name(name)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end(),
            [](const auto& a, const auto& b) { return *step_of_name(a) < *step_of_name(b); });
  return names;
}

Manifest read_manifest(const std::string& path) {
  std::error_code error;
  const std::string place = "checkpoint " + path;
  if (!fs::is_directory(path, error)) throw Error(place, "is not there. Check the path.");
  const std::string file = joined(path, std::string(kManifestName));
  if (!fs::exists(file, error)) {
    throw Error(place, "has no manifest.json: it is no checkpoint, or one that was not finished. Use another one.");
  }
  return parse_manifest(read_text(file), place);
}

std::string incompleteness_of(const std::string& path) {
  try {
    check_lengths(path, read_manifest(path));
    return "";
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

PendingCheckpoint::PendingCheckpoint(const std::string& folder, int64_t step)
    : folder_(folder), name_(step_name(step)) {
  make_folders(folder);
  latest_before_ = named_latest(folder);
  remove_leftovers(folder);
  const std::string path = joined(folder, fmt::format(".{}.tmp-{}", name_, id_.text()));
  if (::mkdir(path.c_str(), 0777) != 0) throw_io_error("make the folder", path, errno);
  temporary_ = path;
  lock_fd_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Where a file system has no locks, folders of dead and living saves look alike; two runs must not share a folder.
  if (lock_fd_ >= 0) ::flock(lock_fd_, LOCK_EX | LOCK_NB);
}

PendingCheckpoint::~PendingCheckpoint() { abandon(); }

void PendingCheckpoint::abandon() noexcept {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
  if (lock_fd_ >= 0) ::close(lock_fd_);
  temporary_.clear();
  lock_fd_ = -1;
}

std::string PendingCheckpoint::publish(const std::string& manifest_text) {
  write_text(joined(temporary_, std::string(kManifestName)), manifest_text);
  sync_folder(temporary_);
  // All that can run out of space comes before the real name is given.
  const std::string pointer = joined(folder_, fmt::format(".latest.tmp-{}", id_.text()));
  const std::string path = joined(folder_, name_);
  std::optional<Locked> pointer_lock;  // once the temporary folder has its real name nothing else tells that this lives
  try {
    write_text(pointer, name_ + "\n");
    pointer_lock.emplace(pointer);
    replace(temporary_, path);
    abandon();  // what stood there before, if anything
    sync_folder(folder_);
    const std::lock_guard lock(own_mutex);
    const std::string named = named_latest(folder_);
    const std::optional<int64_t> now = step_of_name(named);
    if (named != latest_before_ && now && *now > *step_of_name(name_)) {
      ::unlink(pointer.c_str());
    } else {
      replace(pointer, joined(folder_, "latest"));
    }
  } catch (...) {
    ::unlink(pointer.c_str());
    throw;
  }
  sync_folder(folder_);
  return path;
}

void remove_leftovers(const std::string& folder) {
  const std::vector<std::string> names = names_in(folder);
  // A pointer has no lock yet while the temporary folder of its save has one.
  const auto has_living_folder = [&](const std::string& pointer) {
    const std::string end = pointer.substr(std::string(".latest").size());
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name.starts_with(".step-") && name.ends_with(end) && is_living(joined(folder, name));
    });
  };
  for (const std::string& name : names) {
    const bool temporary = name.rfind(".step-", 0) == 0 && name.find(".tmp-") != std::string::npos;
    const bool old = name.rfind(".step-", 0) == 0 && name.find(".old-") != std::string::npos;
    const bool pointer = name.rfind(".latest.tmp-", 0) == 0;
    const std::string path = joined(folder, name);
    if (!old && !((temporary || pointer) && !is_living(path))) continue;
    if (pointer && has_living_folder(name)) continue;
    std::error_code ignored;  // what cannot be removed does no harm
    fs::remove_all(path, ignored);
  }
}

std::string remove_old(const std::string& folder, int64_t step, int keep_last) {
  if (keep_last <= 0) return "";
  std::vector<std::string> before = steps_in(folder);
  std::erase_if(before, [&](const std::string& name) { return *step_of_name(name) >= step; });
  std::string failures;
  int kept = 1;
  for (auto name = before.rbegin(); name != before.rend(); ++name) {
    const std::string path = joined(folder, *name);
    if (kept < keep_last) {
      if (incompleteness_of(path).empty()) ++kept;
      continue;
    }
    // Renamed first: what is half removed has no real name.
    const std::string aside = joined(folder, fmt::format(".{}.old-{}", *name, fresh_id()));
    std::error_code error;
    fs::rename(path, aside, error);
    if (!error) fs::remove_all(aside, error);
    if (error) failures += fmt::format("{}{}: {}", failures.empty() ? "" : "; ", path, error.message());
  }
  return failures;
}

}  // namespace shoal::checkpoint
