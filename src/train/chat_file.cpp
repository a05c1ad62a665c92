// See chat_file.h.
#include "train/chat_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/regular_file.h"
#include "base/text.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

namespace fs = std::filesystem;

// Other tokens of the same file by a later version of tools/make_tokens.py want another number.
constexpr const char* kMaking = "shoal conversations 2";

std::string place_of(const DataSpec& spec) { return "data " + spec.text; }

// Held while the file is made, released with the process whatever becomes of it.
class FileLock {
 public:
  FileLock(const std::string& path, const std::string& place)
      : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    int failed = fd_ < 0 ? -1 : 0;
    while (fd_ >= 0 && (failed = ::flock(fd_, LOCK_EX)) != 0 && errno == EINTR) {
    }
    if (failed == 0) return;
    throw Error(place,
                fmt::format("{} cannot be locked: {}. Give an --out that can be written.", path, std::strerror(errno)));
  }
  ~FileLock() { ::close(fd_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

// The files in a model's folder that the tokens depend on: tools/chat_template.py reads the templates among them.
std::vector<std::string> files_of_tokenizer(const fs::path& folder) {
  std::vector<std::string> templates;
  std::error_code error;  // mostly the folder is not there
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "additional_chat_templates", error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".jinja")) templates.push_back("additional_chat_templates/" + name);
  }
  std::sort(templates.begin(), templates.end());
  std::vector<std::string> files = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                    "chat_template.jinja"};
  files.insert(files.end(), templates.begin(), templates.end());
  return files;
}

// What the tokens depend on: the file as it is now, the tokenizer, its templates.
std::string key_of(const DataSpec& spec, const TokenizerPlace& place) {
  struct stat about {};
  if (::stat(spec.rest.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) {
    throw Error(place_of(spec), "is not a file. Give one of rows: .jsonl or .parquet.");
  }
  if (about.st_size == 0) throw Error(place_of(spec), "is empty. Give a file with conversations in it.");
  uint64_t key = hash_text(fmt::format("{} {} {} {}.{} {}", kMaking, spec.kind, about.st_size, about.st_mtim.tv_sec,
                                       about.st_mtim.tv_nsec, fs::absolute(spec.rest).lexically_normal().string()));
  for (const std::string& name : files_of_tokenizer(place.model_folder)) {
    const std::string path = (fs::path(place.model_folder) / name).string();
    key = hash_text(name, key);
    if (fs::exists(path)) key = hash_text(read_regular(path, place_of(spec), "Put the tokenizer's file there."), key);
  }
  return fmt::format("{:016x}", key);
}

void run_tokenizer(const DataSpec& spec, const TokenizerPlace& place, const std::string& output) {
  std::vector<std::string> words = place.program;
  words.insert(words.end(), {"--tokenizer", place.model_folder, "-o", output, "--layout", spec.kind, "--", spec.rest});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), environ);
  if (failed != 0) {
    throw Error(place_of(spec), fmt::format("{} cannot be started: {}. Run make setup, or set SHOAL_PYTHON to a Python "
                                            "with the packages tokenizers and jinja2.",
                                            words[0], std::strerror(failed)));
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  throw Error(place_of(spec), "was not made into tokens. What was printed above says why.");
}

}  // namespace

std::string token_file_of(const DataSpec& spec, const TokenizerPlace& place) {
  if (place.model_folder.empty() || !fs::exists(fs::path(place.model_folder) / "tokenizer.json")) {
    throw Error(place_of(spec),
                fmt::format("needs the model's own tokenizer, and {}. Give --model a folder that has its "
                            "tokenizer.json, or use `shoal tokenize` and tokens:FILE.",
                            place.model_folder.empty() ? "a built-in model has none"
                                                       : place.model_folder + " has no tokenizer.json"));
  }
  const std::string key = key_of(spec, place);
  const fs::path file = spec.rest;
  const fs::path folder =
      place.run_folder.empty() ? file.parent_path() / ".shoal" : fs::path(place.run_folder) / "tokens";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw Error(place_of(spec), fmt::format("{} cannot be made: {}. Give an --out that can be written.",
                                            folder.string(), error.message()));
  }
  const std::string made = (folder / fmt::format("{}-{}.bin", file.stem().string(), key)).string();
  if (fs::exists(made)) return made;  // it is renamed there when it is whole
  const FileLock lock(made + ".lock", place_of(spec));
  if (!fs::exists(made)) run_tokenizer(spec, place, made);
  return made;
}

}  // namespace shoal::train
