// The reader of safetensors.h: files mapped into memory, tensors found by name.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_format.h"
#include "kernels/convert.h"
#include "shoal/error.h"

namespace shoal {

namespace {

namespace fs = std::filesystem;

void read_f64(const char* from, int64_t numel, float* values) {
  for (int64_t i = 0; i < numel; ++i) {
    double value = 0;
    std::memcpy(&value, from + 8 * i, 8);
    values[i] = static_cast<float>(value);
  }
}

// The file's bytes as fp32. The source may stand at an odd address: it is copied to an aligned one first.
void read_16_bit(const char* from, DType dtype, int64_t numel, float* values) {
  constexpr int64_t kPiece = 4096;
  uint16_t piece[kPiece];
  for (int64_t done = 0; done < numel; done += kPiece) {
    const int64_t count = std::min(kPiece, numel - done);
    std::memcpy(piece, from + 2 * done, static_cast<size_t>(2 * count));
    kernels::convert(piece, dtype, values + done, DType::f32, count);
  }
}

}  // namespace

struct SafetensorsReader::Impl {
  struct Place {
    size_t file = 0;
    SafetensorsEntry entry;
  };

  std::vector<std::string> paths;
  std::vector<std::unique_ptr<MappedFile>> files;
  std::map<std::string, Place> places;
  std::vector<SafeTensor> tensors;

  void add_file(const std::string& path) {
    paths.push_back(path);
    files.push_back(std::make_unique<MappedFile>(path, fmt::format("safetensors {}", path)));
    for (SafetensorsEntry& entry : parse_safetensors_header(path, files.back()->data(), files.back()->nbytes())) {
      const std::string name = entry.tensor.name;
      const auto [place, is_new] = places.try_emplace(name, Place{files.size() - 1, std::move(entry)});
      if (!is_new) {
        throw Error(
            fmt::format("safetensors {}", path),
            fmt::format("{} is in {} too. A tensor may stand in one file only.", name, paths[place->second.file]));
      }
    }
  }

  // weight_map says in which file each tensor is; both sides must agree.
  void add_index(const fs::path& path) {
    const std::string place = fmt::format("safetensors {}", path.string());
    const json::Value root = json::parse(checkpoint::read_text(path.string()), place);
    const json::Value* map = root.is_object() ? root.find("weight_map") : nullptr;
    if (map == nullptr || !map->is_object()) throw Error(place, "there is no object \"weight_map\". Fetch it again.");
    std::map<std::string, std::vector<std::string>> names_of_file;
    for (const json::Member& member : map->as_object()) {
      if (!member.value.is_text() || member.value.as_text().find('/') != std::string::npos) {
        throw Error(place, fmt::format("weight_map gives no file name for {}. Fetch it again.", member.key));
      }
      names_of_file[member.value.as_text()].push_back(member.key);
    }
    std::vector<std::string> missing;
    for (const auto& [file, names] : names_of_file) {
      if (!fs::exists(path.parent_path() / file)) missing.push_back(file);
    }
    if (!missing.empty()) {
      throw Error(place, fmt::format("names files that are not there: {}. Fetch them.", join(missing, ", ")));
    }
    for (const auto& [file, names] : names_of_file) {
      add_file((path.parent_path() / file).string());
      for (const std::string& name : names) {
        const auto found = places.find(name);
        if (found == places.end() || found->second.file != files.size() - 1) missing.push_back(name);
      }
    }
    if (!missing.empty()) {
      throw Error(place, fmt::format("names tensors that their files do not hold: {}. Fetch index and files again.",
                                     join(missing, ", ")));
    }
  }
};

SafetensorsReader::SafetensorsReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsReader::~SafetensorsReader() = default;

std::shared_ptr<const SafetensorsReader> SafetensorsReader::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  fs::path file = path;
  if (fs::is_directory(file)) {
    file = fs::exists(fs::path(path) / kSafetensorsFile) ? fs::path(path) / kSafetensorsFile
                                                         : fs::path(path) / kSafetensorsIndex;
    if (!fs::exists(file)) {
      throw Error(fmt::format("safetensors {}", path),
                  fmt::format("the folder holds neither {} nor {}. Name a folder that does.", kSafetensorsFile,
                              kSafetensorsIndex));
    }
  }
  if (file.extension() == ".json") {
    impl->add_index(file);
  } else {
    impl->add_file(file.string());
  }
  for (const auto& [name, place] : impl->places) impl->tensors.push_back(place.entry.tensor);
  return std::shared_ptr<const SafetensorsReader>(new SafetensorsReader(std::move(impl)));
}

const std::vector<SafeTensor>& SafetensorsReader::tensors() const { return impl_->tensors; }

bool SafetensorsReader::contains(const std::string& name) const { return impl_->places.contains(name); }

void SafetensorsReader::read(const std::string& name, int64_t begin, int64_t numel, float* values) const {
  const auto found = impl_->places.find(name);
  SHOAL_CHECK(found != impl_->places.end(), "there is no tensor {}", name);
  const Impl::Place& place = found->second;
  const std::string& dtype = place.entry.tensor.dtype;
  const int64_t whole = numel_of(place.entry.tensor.shape);
  SHOAL_CHECK(begin >= 0 && numel >= 0 && begin <= whole - numel, "[{}, +{}) of {} elements", begin, numel, whole);
  const char* from = impl_->files[place.file]->data() + place.entry.begin +
                     safetensors_element_nbytes(dtype) * static_cast<uint64_t>(begin);
  if (numel == 0) return;
  if (dtype == "F32") {
    std::memcpy(values, from, static_cast<size_t>(4 * numel));
  } else if (dtype == "BF16") {
    read_16_bit(from, DType::bf16, numel, values);
  } else if (dtype == "F16") {
    read_16_bit(from, DType::f16, numel, values);
  } else if (dtype == "F64") {
    read_f64(from, numel, values);
  } else {
    throw Error(
        fmt::format("safetensors {}", impl_->paths[place.file]),
        fmt::format("{} is {}, not F32, BF16, F16 or F64. Use a checkpoint with floating-point weights.", name, dtype));
  }
}

}  // namespace shoal
