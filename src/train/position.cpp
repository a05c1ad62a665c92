// See position.h.
#include "train/position.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/text.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

constexpr const char* kSamples = "data_samples_consumed";
constexpr const char* kSeed = "data_seed";
constexpr const char* kSequence = "data_sequence";
constexpr const char* kTrainSamples = "data_train_samples";
constexpr const char* kFingerprint = "data_fingerprint";

std::string value_of(const std::map<std::string, std::string>& extra, const char* key) {
  const auto found = extra.find(key);
  return found == extra.end() ? "" : found->second;
}

void expect(const std::map<std::string, std::string>& extra, const char* key, const std::string& wanted,
            const std::string& place, const std::string& remedy) {
  const std::string saved = value_of(extra, key);
  if (saved == wanted) return;
  throw Error(place, fmt::format("the checkpoint was made with {}, this run has {}. Samples would be skipped and "
                                 "repeated. {}",
                                 saved, wanted, remedy));
}

}  // namespace

std::string fingerprint_of(const TokenSource& source) {
  constexpr int64_t kWindows = 64, kWindow = 64;
  uint64_t hash = hash_text("tokens");
  std::vector<int64_t> tokens(kWindow);
  for (int64_t i = 0; i < kWindows; ++i) {
    const int64_t numel = std::min(kWindow, source.numel());
    const int64_t begin = (source.numel() - numel) * i / (kWindows - 1);
    source.read(begin, numel, tokens.data());
    hash =
        hash_text({reinterpret_cast<const char*>(tokens.data()), static_cast<size_t>(numel) * sizeof(int64_t)}, hash);
  }
  return fmt::format("{} tokens {:016x}", source.numel(), hash);
}

void put_position(const Position& position, std::map<std::string, std::string>& extra) {
  extra[kSamples] = std::to_string(position.samples);
  extra[kSeed] = std::to_string(position.seed);
  extra[kSequence] = std::to_string(position.sequence);
  extra[kTrainSamples] = std::to_string(position.train_samples);
  extra[kFingerprint] = position.data;
}

int64_t resumed_samples(const std::map<std::string, std::string>& extra, const Position& expected) {
  const std::string text = value_of(extra, kSamples);
  if (text.empty()) return 0;
  const auto same_or_export =
      "Use what it was made with; to train on other data, export the checkpoint (`shoal checkpoint export`) and start "
      "a "
      "new run with --model.";
  expect(extra, kFingerprint, expected.data, "--data", same_or_export);
  expect(extra, kSeed, std::to_string(expected.seed), "--seed", "Use the same seed.");
  expect(extra, kSequence, std::to_string(expected.sequence), "--sequence", "Use the same length.");
  expect(extra, kTrainSamples, std::to_string(expected.train_samples), "--validation", "Use the same share.");
  int64_t samples = 0;
  const auto [end, mistake] = std::from_chars(text.data(), text.data() + text.size(), samples);
  if (mistake != std::errc() || end != text.data() + text.size() || samples < 0) {
    throw Error("--resume", fmt::format("the checkpoint says that \"{}\" samples were consumed. It is damaged.", text));
  }
  return samples;
}

}  // namespace shoal::train
