// See verify.h.
#include "checkpoint/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/digest.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/exchange.h"
#include "checkpoint/file_lengths.h"
#include "checkpoint/run_folder.h"

namespace shoal::checkpoint {

namespace {

// A stretch of a file that the manifest speaks of.
struct Stretch {
  int64_t offset = 0;
  int64_t nbytes = 0;
  uint64_t digest = 0;
  std::string what;
};

std::vector<Stretch> stretches_of(const Manifest& manifest, int file) {
  std::vector<Stretch> all;
  for (const Piece& piece : manifest.pieces) {
    if (piece.file == file) all.push_back({piece.offset, piece.nbytes(), piece.digest, manifest.describe(piece)});
  }
  for (const SavedRandom& random : manifest.randoms) {
    if (random.file == file) {
      all.push_back(
          {random.offset, random.nbytes, random.digest, fmt::format("the random state of rank {}", random.rank)});
    }
  }
  std::sort(all.begin(), all.end(), [](const Stretch& a, const Stretch& b) { return a.offset < b.offset; });
  return all;
}

class FileVerifier {
 public:
  FileVerifier(const std::string& folder, const Manifest& manifest, int index)
      : folder_(folder), saved_(manifest.files[index]), stretches_(stretches_of(manifest, index)) {}

  std::vector<std::string> verify() {
    int64_t end = saved_.nbytes;
    if (const std::optional<WrongLength> wrong = wrong_length(folder_, saved_)) {
      end = std::min(end, wrong->there);
      if (end < saved_.nbytes) {
        report_lost(wrong->what, end);
      } else {
        say(wrong->what);
      }
      if (end == 0) return problems_;
    }
    try {
      verify_bytes(DurableFile::open_read((std::filesystem::path(folder_) / saved_.name).string()), end);
    } catch (const std::exception& failure) {
      problems_.push_back(message_of(failure));
    }
    return problems_;
  }

 private:
  void say(const std::string& what) { problems_.push_back(fmt::format("{} {}", saved_.name, what)); }

  // All stretches that reach beyond `end` are gone.
  void report_lost(const std::string& what, int64_t end) {
    if (stretches_.empty()) say(what);
    for (const Stretch& stretch : stretches_) {
      if (stretch.offset + stretch.nbytes > end) say(fmt::format("{}; lost: {}", what, stretch.what));
    }
  }

  void verify_bytes(const DurableFile& file, int64_t end) {
    int64_t reached = 0;
    std::vector<uint8_t> bytes;
    for (const Stretch& stretch : stretches_) {
      if (stretch.offset + stretch.nbytes > end) return;  // reported as lost
      bytes.resize(static_cast<size_t>(std::max<int64_t>(stretch.offset - reached, 0)));
      file.read_at(reached, bytes.data(), bytes.size());
      if (std::any_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte != 0; })) {
        say(fmt::format("is damaged in the padding before {} (bytes {} to {})", stretch.what, reached,
                        stretch.offset - 1));
      }
      bytes.resize(static_cast<size_t>(stretch.nbytes));
      file.read_at(stretch.offset, bytes.data(), bytes.size());
      if (digest_of(bytes.data(), bytes.size()) != stretch.digest) {
        say(fmt::format("is damaged: {} (bytes {} to {}) has another checksum than when it was saved", stretch.what,
                        stretch.offset, stretch.offset + stretch.nbytes - 1));
      }
      reached = std::max(reached, stretch.offset + stretch.nbytes);
    }
  }

  std::string folder_;
  SavedFile saved_;
  std::vector<Stretch> stretches_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> verify(const std::string& path) {
  std::optional<Manifest> manifest;
  try {
    manifest = read_manifest(path);
  } catch (const std::exception& failure) {
    return {message_of(failure)};
  }
  std::vector<std::string> problems;
  for (size_t file = 0; file < manifest->files.size(); ++file) {
    for (std::string& problem : FileVerifier(path, *manifest, static_cast<int>(file)).verify()) {
      problems.push_back(std::move(problem));
    }
  }
  return problems;
}

}  // namespace shoal::checkpoint
