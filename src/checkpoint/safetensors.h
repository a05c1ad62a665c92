// Hugging Face's safetensors: reading one file or a folder with an index, memory-mapped, and writing in a stream.
// Nothing here knows models or ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/dtype.h"

namespace shoal {

struct SafeTensor {
  std::string name;
  std::string dtype;  // as the file says: "F32", "BF16", "F16", "I64", ...
  std::vector<int64_t> shape;
};

// All tensors of a model.safetensors, or of model.safetensors.index.json and its files. Throws on a file that is
// truncated, overlaps, or has a header that is not well-formed, naming the file and the tensor.
class SafetensorsReader {
 public:
  // `path`: a .safetensors file, an index file, or a folder that holds one of them.
  static std::shared_ptr<const SafetensorsReader> open(const std::string& path);
  ~SafetensorsReader();

  const std::vector<SafeTensor>& tensors() const;  // sorted by name
  bool contains(const std::string& name) const;
  // Elements [begin, begin + numel) of a floating-point tensor as fp32. Pages not read are not loaded.
  void read(const std::string& name, int64_t begin, int64_t numel, float* values) const;

 private:
  struct Impl;
  explicit SafetensorsReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct SafetensorsWriteOptions {
  DType dtype = DType::bf16;
  uint64_t max_shard_nbytes = uint64_t{5} << 30;  // a new file begins before a file would be larger
  std::string stem = "model";                     // of the files' names
};

// Behind the name of a file that is being written, or that a killed writer left.
inline constexpr std::string_view kPartialSuffix = ".partial";

// Writes `folder`/<stem>.safetensors, or <stem>-0000i-of-0000n.safetensors with an index. Values are asked for range by
// range, in order, so memory stays small. Files are written under temporary names, synced and renamed.
// Then what earlier writers left under such names is removed.
// fill(name, begin, numel, out): elements of a tensor as fp32.
using FillValues = std::function<void(const std::string& name, int64_t begin, int64_t numel, float* out)>;
void write_safetensors(const std::string& folder, const std::vector<SafeTensor>& tensors,
                       const SafetensorsWriteOptions& options, const FillValues& fill);

}  // namespace shoal
