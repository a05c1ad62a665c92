// See text_source.h.
#include "train/text_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/lfs_pointer.h"
#include "base/mapped_file.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

namespace fs = std::filesystem;

constexpr size_t kLook = 1 << 16;  // bytes that say what kind of file it is

bool is_hidden(const fs::path& path) { return path.filename().string().rfind('.', 0) == 0; }

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> files;
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry) {
    if (is_hidden(entry->path())) {
      if (entry->is_directory()) entry.disable_recursion_pending();
    } else if (entry->is_regular_file()) {
      files.push_back(entry->path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// What begins as a text never does that a model over bytes should learn.
void refuse_other_files(std::string_view bytes, const std::string& place) {
  refuse_lfs_pointer(bytes, place);
  if (bytes.starts_with("\xff\xfe") || bytes.starts_with("\xfe\xff")) {
    throw Error(place, "is in UTF-16. Save it as UTF-8.");
  }
  const size_t zero = bytes.substr(0, kLook).find('\0');
  if (zero != std::string_view::npos) {
    throw Error(place, fmt::format("is no text: byte {} is zero. Give text, or a token file as tokens:PATH.", zero));
  }
}

// Whether the first line alone is an object, as in a file of rows or of conversations.
bool is_lines_of_json(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, std::min(bytes.find('\n'), kLook));
  if (!line.starts_with('{') || line.size() == kLook) return false;
  try {
    return json::parse(std::string(line), "").is_object();
  } catch (const Error&) {
    return false;
  }
}

class TextSource final : public TokenSource {
 public:
  explicit TextSource(const std::string& path) : path_(path) {
    const std::string place = "data text:" + path;
    if (!fs::exists(path)) throw Error(place, "does not exist. Give a text file, or a folder of them.");
    const bool folder = fs::is_directory(path);
    for (const std::string& file : folder ? files_in(path) : std::vector<std::string>{path}) {
      MappedFile mapped(file, place);
      if (mapped.nbytes() == 0) continue;
      refuse_other_files({mapped.data(), mapped.nbytes()}, folder ? place + ": " + file : place);
      if (rows_.empty() && is_lines_of_json({mapped.data(), mapped.nbytes()})) rows_ = file;
      begins_.push_back(numel_);
      numel_ += static_cast<int64_t>(mapped.nbytes());
      files_.push_back(std::move(mapped));
    }
    if (numel_ == 0) {
      throw Error(place, folder ? "this folder holds no file with text in it. Give another."
                                : "is empty. Give a file with text in it.");
    }
  }

  int64_t numel() const override { return numel_; }
  int64_t vocab() const override { return kByteVocab; }
  void read(int64_t begin, int64_t numel, int64_t* tokens) const override {
    SHOAL_CHECK(begin >= 0 && numel >= 0 && begin + numel <= numel_);
    size_t file = static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), begin) - begins_.begin()) - 1;
    while (numel > 0) {
      const size_t offset = static_cast<size_t>(begin - begins_[file]);
      const int64_t here = std::min<int64_t>(numel, static_cast<int64_t>(files_[file].nbytes() - offset));
      const char* bytes = files_[file].data() + offset;
      for (int64_t i = 0; i < here; ++i) tokens[i] = static_cast<unsigned char>(bytes[i]);
      tokens += here;
      begin += here;
      numel -= here;
      ++file;
    }
  }
  std::string describe() const override {
    return fmt::format("text:{} ({} {})", path_, files_.size(), files_.size() == 1 ? "file" : "files");
  }

  std::string doubt() const override {
    if (rows_.empty()) return "";
    return fmt::format(
        "{} holds rows of JSON, and the model learns its braces and names of fields too: write the text of "
        "each row alone into a file, or use `shoal tokenize` and tokens:FILE; conversations are for chat:FILE",
        rows_);
  }

 private:
  std::string path_;
  std::string rows_;  // the first file that holds rows of JSON, if one does
  std::vector<MappedFile> files_;
  std::vector<int64_t> begins_;  // token with which each file begins
  int64_t numel_ = 0;
};

}  // namespace

std::unique_ptr<TokenSource> open_text(const std::string& path) { return std::make_unique<TextSource>(path); }

}  // namespace shoal::train
