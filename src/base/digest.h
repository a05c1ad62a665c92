// The checksum of bytes: XXH3, 64 bits. Checkpoints have it in their manifests and the disk tier compares it, so it
// stays what it is. The only file that sees xxHash is digest.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace shoal {

uint64_t digest_of(const void* data, size_t nbytes);

// The same, of bytes that come one part after the other.
class DigestStream {
 public:
  DigestStream();
  ~DigestStream();
  DigestStream(const DigestStream&) = delete;
  DigestStream& operator=(const DigestStream&) = delete;
  void add(const void* data, size_t nbytes);
  uint64_t value() const;  // of what was added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 16 hexadecimal digits, and back; nothing when the text is not that.
std::string digest_text(uint64_t digest);
std::optional<uint64_t> digest_from(std::string_view text);

}  // namespace shoal
