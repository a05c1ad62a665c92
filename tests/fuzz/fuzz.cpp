// Inputs that people or programs may get wrong, or wrong on purpose, in thousands of variants: each is read, or is an
// error that says what is wrong. A crash, a hang, any other exception, a broken promise or an error that nobody can
// read ends the program with 1 and leaves the input beside it.
//
//   fuzz TARGET|all [--inputs N] [--seconds S] [--seed K] [--corpus FOLDER]
//   fuzz TARGET FILE...           reads these inputs as they are
//
// FOLDER/TARGET/* are the right inputs that variants are made of.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>

#include "base/check.h"
#include "base/json.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors_format.h"
#include "forecast/cluster.h"
#include "fuzz/mutate.h"
#include "models/dense/config.h"
#include "models/gpt2/config.h"
#include "models/open_model.h"
#include "shoal/config.h"
#include "shoal/error.h"
#include "train/token_file.h"

namespace shoal::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kHangSeconds = 10;           // of the processor's time, for one input
constexpr size_t kLongestMessage = 20000;  // a config may have hundreds of mistakes, each a line

struct Target {
  std::function<void(const std::string& input)> read;
};

std::string scratch() {
  static const std::string path = [] {
    std::string name = (fs::temp_directory_path() / "shoal-fuzz-XXXXXX").string();
    return std::string(mkdtemp(name.data()));
  }();
  return path;
}

std::string written(const std::string& name, const std::string& bytes) {
  const std::string path = scratch() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

const std::map<std::string, Target>& targets() {
  static const std::map<std::string, Target> kTargets = {
      {"config", {[](const std::string& input) {
         const Config config = Config::from_text(input, {.world_size = 4, .hidden_size = 64});
         Config::from_text(config.to_json(), {.world_size = 4});
       }}},
      {"json", {[](const std::string& input) {
         const json::Value value = json::parse(input, "input");
         json::parse(json::write(value), "written");
       }}},
      {"safetensors", {[](const std::string& input) {
         for (const SafetensorsEntry& entry : parse_safetensors_header("x.safetensors", input.data(), input.size())) {
           if (entry.begin > entry.end || entry.end > input.size()) throw std::logic_error("a tensor lies outside");
         }
       }}},
      {"manifest", {[](const std::string& input) {
         const checkpoint::Manifest manifest = checkpoint::parse_manifest(input, "manifest");
         checkpoint::parse_manifest(checkpoint::write_manifest(manifest), "written");
       }}},
      {"tokens", {[](const std::string& input) {
         // FILE, or SIDECAR and FILE with a line between.
         const size_t end = input.find("\n---\n");
         fs::remove(scratch() + "/tokens.bin.json");
         if (end != std::string::npos) written("tokens.bin.json", input.substr(0, end));
         const std::string file = end == std::string::npos ? input : input.substr(end + 5);
         const auto tokens = train::open_token_file(written("tokens.bin", file));
         std::vector<int64_t> read(static_cast<size_t>(std::min<int64_t>(tokens->numel(), 16)));
         tokens->read(0, static_cast<int64_t>(read.size()), read.data());
         tokens->read(tokens->numel() - static_cast<int64_t>(read.size()), static_cast<int64_t>(read.size()),
                      read.data());
         int64_t learned = 0;
         for (int64_t i = 0; i < tokens->documents(); ++i) {
           const int64_t begin = tokens->document_begin(i);
           learned += tokens->count_learned(begin, tokens->document_begin(i + 1) - begin);
         }
         SHOAL_CHECK(learned <= tokens->numel());
       }}},
      {"hf_config", {[](const std::string& input) {
         // Families refuse each other's, so each reads it.
         std::exception_ptr refused;
         for (const bool llama : {true, false}) {
           try {
             const models::HfConfig config(json::parse(input, "config.json"), "config.json");
             if (llama) models::read_dense_config(config);
             if (!llama) models::read_gpt2_config(config);
           } catch (const Error&) {
             refused = std::current_exception();
           }
         }
         if (refused) std::rethrow_exception(refused);
       }}},
      {"cluster", {[](const std::string& input) { forecast::describe(forecast::read_cluster(input, "c.json")); }}},
  };
  return kTargets;
}

// What was being read, for the handler of signals.
const std::string* reading = nullptr;
char left_at[4096];

void leave_input() {
  if (reading == nullptr) return;
  const int fd = ::open(left_at, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  const ssize_t done = ::write(fd, reading->data(), reading->size());
  ::close(fd);
  const char* words = done < 0 ? "\nfuzz: the input could not be written to " : "\nfuzz: the input is in ";
  (void)!::write(STDERR_FILENO, words, std::strlen(words));
  (void)!::write(STDERR_FILENO, left_at, std::strlen(left_at));
  (void)!::write(STDERR_FILENO, "\n", 1);
}

void when_killed(int signal) {
  const char* words = signal == SIGPROF ? "\nfuzz: this input hangs" : "\nfuzz: this input crashes";
  (void)!::write(STDERR_FILENO, words, std::strlen(words));
  leave_input();
  ::signal(signal, SIG_DFL);
  ::raise(signal == SIGPROF ? SIGKILL : signal);
}

void watch_time(int seconds) {
  itimerval timer{};
  timer.it_value.tv_sec = seconds;
  ::setitimer(ITIMER_PROF, &timer, nullptr);
}

// "" if it was read, or refused in words.
std::string wrong_with(const Target& target, const std::string& input) {
  try {
    target.read(input);
    return "";
  } catch (const Error& error) {
    const std::string text = error.what();
    if (text.empty() || text.front() != '[') return "an error without a place: " + text;
    if (text.size() > kLongestMessage) return fmt::format("an error of {} characters", text.size());
    const auto is_bad = [](unsigned char c) { return (c < 32 && c != '\n' && c != '\t') || c == 127; };
    if (std::any_of(text.begin(), text.end(), is_bad))
      return "an error with control characters: " + text.substr(0, 400);
    return "";
  } catch (const std::exception& error) {
    return fmt::format("{}: {}", typeid(error).name(), std::string(error.what()).substr(0, 2000));
  }
}

struct Run {
  int64_t inputs = 2000;
  double seconds = 1e9;
  uint64_t seed = 1;
  std::string corpus = SHOAL_SOURCE_DIR "/tests/fuzz/corpus";
};

std::string bytes_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

bool read_one(const std::string& name, const std::string& input) {
  reading = &input;
  std::snprintf(left_at, sizeof(left_at), "fuzz-%s.input", name.c_str());
  watch_time(kHangSeconds);
  const std::string wrong = wrong_with(targets().at(name), input);
  watch_time(0);
  if (!wrong.empty()) {
    fmt::print(stderr, "fuzz {}: {}", name, wrong);
    leave_input();
  }
  reading = nullptr;
  return wrong.empty();
}

bool fuzz(const std::string& name, const Run& run) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(run.corpus + "/" + name)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> corpus = {""};
  for (const fs::path& file : files) corpus.push_back(bytes_of(file));
  for (const std::string& input : corpus) {
    if (!read_one(name, input)) return false;
  }
  Mutations mutations(corpus, run.seed);
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  int64_t done = 0;
  for (; done < run.inputs && passed() < run.seconds; ++done) {
    if (!read_one(name, mutations.next())) return false;
  }
  fmt::print("fuzz {}: {} inputs in {:.1f} s, seed {}\n", name, done, passed(), run.seed);
  return true;
}

int fuzz_main(const std::vector<std::string>& words) {
  std::vector<std::string> names, files;
  Run run;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size();
    if (words[i] == "--inputs" && has_value)
      run.inputs = std::stoll(words[++i]);
    else if (words[i] == "--seconds" && has_value)
      run.seconds = std::stod(words[++i]), run.inputs = INT64_MAX;
    else if (words[i] == "--seed" && has_value)
      run.seed = std::stoull(words[++i]);
    else if (words[i] == "--corpus" && has_value)
      run.corpus = words[++i];
    else if (words[i] == "all")
      for (const auto& [name, target] : targets()) names.push_back(name);
    else if (targets().contains(words[i]))
      names.push_back(words[i]);
    else
      files.push_back(words[i]);
  }
  if (names.empty() || (!files.empty() && names.size() != 1)) {
    fmt::print(
        stderr,
        "usage: fuzz TARGET|all [--inputs N] [--seconds S] [--seed K] [--corpus FOLDER], or fuzz TARGET FILE...\n");
    return 2;
  }
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGPROF}) ::signal(signal, when_killed);
  bool good = true;
  for (const std::string& file : files) good = read_one(names[0], bytes_of(file)) && good;
  if (files.empty()) {
    for (const std::string& name : names) good = fuzz(name, run) && good;
  }
  fs::remove_all(scratch());
  return good ? 0 : 1;
}

}  // namespace
}  // namespace shoal::testing

int main(int argc, char** argv) { return shoal::testing::fuzz_main({argv + 1, argv + argc}); }
