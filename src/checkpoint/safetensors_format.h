// What the reader and the writer of safetensors share: the element types, and one file's header.
//
//   file    = u64 header length in bytes, little-endian; header; data
//   header  = JSON {"__metadata__": {text: text}, name: {"dtype": text, "shape": [int], "data_offsets": [begin, end]}}
//   offsets = bytes, counted from the first byte of the data; tensors lie side by side and leave no gap
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace shoal {

inline constexpr const char* kSafetensorsFile = "model.safetensors";
inline constexpr const char* kSafetensorsIndex = "model.safetensors.index.json";

// Bytes of an element of "F32", "BF16", "I64", ...; 0 for a name that the format does not know.
uint64_t safetensors_element_nbytes(std::string_view dtype);
std::string_view safetensors_dtype(DType dtype);

int64_t numel_of(const std::vector<int64_t>& shape);

struct SafetensorsEntry {
  SafeTensor tensor;
  uint64_t begin = 0;  // in the file
  uint64_t end = 0;
};

// Reads the header of a file of `nbytes` bytes at `bytes` and checks that its tensors tile the data exactly.
// `path` is for messages.
std::vector<SafetensorsEntry> parse_safetensors_header(const std::string& path, const char* bytes, uint64_t nbytes);

// The length and the header for these tensors, one after the other in this order, as one text; padded to 8 bytes.
std::string make_safetensors_header(const std::vector<SafeTensor>& tensors, DType dtype);

}  // namespace shoal
