// The writer of safetensors.h: a plan of files from shapes alone, then each file in one stream.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <regex>
#include <set>

#include "base/json.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_format.h"
#include "kernels/convert.h"

namespace shoal {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceNumel = int64_t{1} << 20;  // values asked for at once

// A file under a temporary name; it gets its own name by publish(), and is removed if that does not happen.
class NewFile {
 public:
  explicit NewFile(const fs::path& path)
      : path_(path.string()),
        temporary_(path_ + std::string(kPartialSuffix)),
        file_(std::in_place, checkpoint::DurableFile::create(temporary_)) {}
  ~NewFile() {
    if (!published_) ::unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* bytes, size_t nbytes) {
    file_->write_at(written_nbytes_, bytes, nbytes);
    written_nbytes_ += static_cast<int64_t>(nbytes);
  }
  void finish() {
    file_->sync();
    file_.reset();
  }
  void publish() {
    checkpoint::replace(temporary_, path_);
    published_ = true;
  }

 private:
  std::string path_;
  std::string temporary_;
  std::optional<checkpoint::DurableFile> file_;  // open until finish()
  int64_t written_nbytes_ = 0;
  bool published_ = false;
};

std::vector<std::vector<SafeTensor>> plan_files(const std::vector<SafeTensor>& tensors,
                                                const SafetensorsWriteOptions& options) {
  std::vector<std::vector<SafeTensor>> files(1);
  uint64_t filled = 0;
  for (const SafeTensor& tensor : tensors) {
    const uint64_t nbytes = static_cast<uint64_t>(numel_of(tensor.shape)) * nbytes_of(options.dtype);
    if (filled > 0 && filled + nbytes > options.max_shard_nbytes) {
      files.emplace_back();
      filled = 0;
    }
    files.back().push_back(tensor);
    filled += nbytes;
  }
  return files;
}

// To bf16 as a bf16 run rounds its masters (see [Note: the split master] in kernels/convert.h), so that the file holds
// the weights which that run computes with.
void encode(const float* values, DType dtype, void* out, int64_t numel) {
  if (dtype == DType::bf16) {
    uint16_t* weights = static_cast<uint16_t*>(out);
    for (int64_t i = 0; i < numel; ++i) weights[i] = kernels::split_weight(values[i]);
  } else {
    kernels::convert(values, DType::f32, out, dtype, numel);
  }
}

void write_file(NewFile& file, const std::vector<SafeTensor>& tensors, DType dtype, const FillValues& fill) {
  const std::string header = make_safetensors_header(tensors, dtype);
  file.write(header.data(), header.size());
  std::vector<float> values;
  std::vector<char> encoded;
  for (const SafeTensor& tensor : tensors) {
    const int64_t numel = numel_of(tensor.shape);
    for (int64_t begin = 0; begin < numel; begin += kPieceNumel) {
      const int64_t count = std::min(kPieceNumel, numel - begin);
      values.resize(static_cast<size_t>(count));
      encoded.resize(static_cast<size_t>(count) * nbytes_of(dtype));
      fill(tensor.name, begin, count, values.data());
      encode(values.data(), dtype, encoded.data(), count);
      file.write(encoded.data(), encoded.size());
    }
  }
  file.finish();
}

std::string make_index(const std::vector<std::vector<SafeTensor>>& files, const std::vector<std::string>& names,
                       DType dtype) {
  json::Object map;
  int64_t nbytes = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    for (const SafeTensor& tensor : files[i]) {
      map.push_back({tensor.name, names[i], {}});
      nbytes += numel_of(tensor.shape) * static_cast<int64_t>(nbytes_of(dtype));
    }
  }
  json::Value root = json::Object{};
  root.set("metadata", json::Object{{"total_size", nbytes, {}}});
  root.set("weight_map", std::move(map));
  return json::write(root, 2) + "\n";
}

// An earlier export's files under the format's own names would otherwise be read with, or instead of, the new ones.
// What a killed one left half written goes too.
void remove_earlier(const fs::path& folder, const std::string& stem, const std::set<std::string>& written) {
  const std::regex ours(stem + "(-[0-9]{5}-of-[0-9]{5})?\\.safetensors|" + stem + "\\.safetensors\\.index\\.json");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const size_t suffix_length = name.ends_with(kPartialSuffix) ? kPartialSuffix.size() : 0;
    const std::string whole_name = name.substr(0, name.size() - suffix_length);
    if (std::regex_match(whole_name, ours) && !written.contains(name)) fs::remove(entry.path());
  }
}

}  // namespace

void write_safetensors(const std::string& folder, const std::vector<SafeTensor>& tensors,
                       const SafetensorsWriteOptions& options, const FillValues& fill) {
  checkpoint::make_folders(folder);
  const std::vector<std::vector<SafeTensor>> files = plan_files(tensors, options);
  std::vector<std::string> names;
  for (size_t i = 0; i < files.size(); ++i) {
    names.push_back(files.size() == 1
                        ? options.stem + ".safetensors"
                        : fmt::format("{}-{:05}-of-{:05}.safetensors", options.stem, i + 1, files.size()));
  }
  std::vector<std::unique_ptr<NewFile>> written;
  for (size_t i = 0; i < files.size(); ++i) {
    written.push_back(std::make_unique<NewFile>(fs::path(folder) / names[i]));
    write_file(*written.back(), files[i], options.dtype, fill);
  }
  if (files.size() > 1) {
    const std::string index = make_index(files, names, options.dtype);
    names.push_back(options.stem + ".safetensors.index.json");
    written.push_back(std::make_unique<NewFile>(fs::path(folder) / names.back()));
    written.back()->write(index.data(), index.size());
    written.back()->finish();
  }
  for (const std::unique_ptr<NewFile>& file : written) file->publish();
  remove_earlier(folder, options.stem, {names.begin(), names.end()});
  checkpoint::sync_folder(folder);
}

}  // namespace shoal
