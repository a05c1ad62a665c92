// See safetensors_format.h.
#include "checkpoint/safetensors_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/json.h"
#include "base/lfs_pointer.h"
#include "base/text.h"
#include "shoal/error.h"

namespace shoal {

namespace {

constexpr uint64_t kLengthNbytes = 8;
constexpr uint64_t kMaxHeaderNbytes = 100'000'000;  // the limit of the format's own library

struct Element {
  std::string_view name;
  uint64_t nbytes;
};
constexpr std::array<Element, 15> kElements = {{{"F32", 4},
                                                {"BF16", 2},
                                                {"F16", 2},
                                                {"F64", 8},
                                                {"I64", 8},
                                                {"I32", 4},
                                                {"I16", 2},
                                                {"I8", 1},
                                                {"U64", 8},
                                                {"U32", 4},
                                                {"U16", 2},
                                                {"U8", 1},
                                                {"BOOL", 1},
                                                {"F8_E4M3", 1},
                                                {"F8_E5M2", 1}}};

std::string place_of(const std::string& path) { return fmt::format("safetensors {}", path); }

[[noreturn]] void refuse_entry(const std::string& path, const std::string& name, const std::string& what) {
  throw Error(place_of(path),
              fmt::format("the header's entry for {} {}. The file is damaged; fetch it again.", name, what));
}

// A list of integers that are not negative, and not so large that offsets could overflow.
std::vector<int64_t> read_counts(const std::string& path, const std::string& name, const json::Value& entry,
                                 std::string_view key) {
  const json::Value* list = entry.find(key);
  if (list == nullptr || !list->is_array()) refuse_entry(path, name, fmt::format("has no list \"{}\"", key));
  std::vector<int64_t> counts;
  for (const json::Value& item : list->as_array()) {
    if (!item.is_integer() || item.as_integer() < 0 || item.as_integer() > (int64_t{1} << 56)) {
      refuse_entry(path, name, fmt::format("has a \"{}\" that is not a list of counts", key));
    }
    counts.push_back(item.as_integer());
  }
  return counts;
}

SafetensorsEntry read_entry(const std::string& path, const std::string& name, const json::Value& value,
                            uint64_t data_begin) {
  if (!value.is_object()) refuse_entry(path, name, "is not an object");
  const json::Value* dtype = value.find("dtype");
  if (dtype == nullptr || !dtype->is_text()) refuse_entry(path, name, "has no text \"dtype\"");
  SafetensorsEntry entry;
  entry.tensor = {name, dtype->as_text(), read_counts(path, name, value, "shape")};
  const std::vector<int64_t> offsets = read_counts(path, name, value, "data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1]) refuse_entry(path, name, "has wrong \"data_offsets\"");
  entry.begin = data_begin + static_cast<uint64_t>(offsets[0]);
  entry.end = data_begin + static_cast<uint64_t>(offsets[1]);

  const uint64_t element_nbytes = safetensors_element_nbytes(entry.tensor.dtype);
  if (element_nbytes == 0) refuse_entry(path, name, fmt::format("has the unknown dtype \"{}\"", dtype->as_text()));
  uint64_t wanted = element_nbytes;
  for (const int64_t length : entry.tensor.shape) {
    if (__builtin_mul_overflow(wanted, static_cast<uint64_t>(length), &wanted)) {
      refuse_entry(path, name, fmt::format("has the impossible shape {}", format_shape(entry.tensor.shape)));
    }
  }
  if (wanted != entry.end - entry.begin) {
    refuse_entry(path, name,
                 fmt::format("says {} of {}, which is {} bytes, and gives {}", format_shape(entry.tensor.shape),
                             dtype->as_text(), wanted, entry.end - entry.begin));
  }
  return entry;
}

}  // namespace

uint64_t safetensors_element_nbytes(std::string_view dtype) {
  for (const Element& element : kElements) {
    if (element.name == dtype) return element.nbytes;
  }
  return 0;
}

std::string_view safetensors_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32: return "F32";
    case DType::bf16: return "BF16";
    case DType::f16: return "F16";
  }
  return "?";
}

int64_t numel_of(const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (const int64_t length : shape) numel *= length;
  return numel;
}

std::vector<SafetensorsEntry> parse_safetensors_header(const std::string& path, const char* bytes, uint64_t nbytes) {
  refuse_lfs_pointer({bytes, static_cast<size_t>(nbytes)}, place_of(path));
  uint64_t header_nbytes = 0;
  if (nbytes >= kLengthNbytes) std::memcpy(&header_nbytes, bytes, kLengthNbytes);
  if (nbytes < kLengthNbytes || header_nbytes > kMaxHeaderNbytes || header_nbytes > nbytes - kLengthNbytes) {
    throw Error(place_of(path), fmt::format("{} bytes do not hold the header of {} bytes. The file is truncated, or it "
                                            "is not safetensors.",
                                            nbytes, header_nbytes));
  }
  const json::Value root =
      json::parse({bytes + kLengthNbytes, static_cast<size_t>(header_nbytes)}, place_of(path) + " header");
  if (!root.is_object()) throw Error(place_of(path), "the header is not a JSON object. Fetch the file again.");

  const uint64_t data_begin = kLengthNbytes + header_nbytes;
  std::vector<SafetensorsEntry> entries;
  for (const json::Member& member : root.as_object()) {
    if (member.key != "__metadata__") entries.push_back(read_entry(path, member.key, member.value, data_begin));
  }
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t covered = data_begin;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.end > nbytes) {
      throw Error(place_of(path), fmt::format("is truncated: {} ends at byte {}, the file at byte {}. Fetch it again.",
                                              entry.tensor.name, entry.end, nbytes));
    }
    if (entry.begin != covered) {
      refuse_entry(path, entry.tensor.name,
                   fmt::format("{} what comes before it", entry.begin < covered ? "overlaps" : "leaves a gap after"));
    }
    covered = entry.end;
  }
  if (covered != nbytes) {
    throw Error(place_of(path), fmt::format("its tensors end at byte {}, the file at byte {}. The file is damaged; "
                                            "fetch it again.",
                                            covered, nbytes));
  }
  return entries;
}

std::string make_safetensors_header(const std::vector<SafeTensor>& tensors, DType dtype) {
  json::Object members;
  members.push_back({"__metadata__", json::Object{{"format", "pt", {}}}, {}});
  int64_t offset = 0;
  for (const SafeTensor& tensor : tensors) {
    json::Array shape;
    for (const int64_t length : tensor.shape) shape.push_back(length);
    const int64_t end = offset + numel_of(tensor.shape) * static_cast<int64_t>(nbytes_of(dtype));
    json::Value entry = json::Object{};
    entry.set("dtype", safetensors_dtype(dtype));
    entry.set("shape", std::move(shape));
    entry.set("data_offsets", json::Array{offset, end});
    members.push_back({tensor.name, std::move(entry), {}});
    offset = end;
  }
  std::string header = json::write(std::move(members));
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  std::string text(kLengthNbytes, '\0');
  std::memcpy(text.data(), &length, kLengthNbytes);
  return text + header;
}

}  // namespace shoal
