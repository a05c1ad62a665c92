// A token file as docs/formats/tokens.md has it, for tests; users write them with `shoal tokenize`.
#pragma once

#include <bit>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace shoal::testing {

inline void write_tokens(const std::string& path, uint64_t vocab, const std::vector<int64_t>& tokens) {
  static_assert(std::endian::native == std::endian::little);
  const uint32_t version = 1;
  const uint32_t width = vocab <= 65536 ? 2 : 4;
  const uint64_t count = tokens.size();
  std::ofstream file(path, std::ios::binary);
  const auto put = [&](const auto& value, size_t nbytes) {
    file.write(reinterpret_cast<const char*>(&value), static_cast<std::streamsize>(nbytes));
  };
  file << "SHOALTOK";
  put(version, sizeof(version));
  put(width, sizeof(width));
  put(vocab, sizeof(vocab));
  put(count, sizeof(count));
  for (const int64_t token : tokens) put(token, width);
}

}  // namespace shoal::testing
