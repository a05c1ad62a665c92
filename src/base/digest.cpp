// See digest.h.
#define XXH_INLINE_ALL
#include "base/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>

#include "base/check.h"

namespace shoal {

uint64_t digest_of(const void* data, size_t nbytes) { return XXH3_64bits(data, nbytes); }

struct DigestStream::State {
  XXH3_state_t* hash = XXH3_createState();
  ~State() { XXH3_freeState(hash); }
};
DigestStream::DigestStream() : state_(std::make_unique<State>()) {
  SHOAL_CHECK(state_->hash != nullptr, "no memory for a checksum");
  XXH3_64bits_reset(state_->hash);
}
DigestStream::~DigestStream() = default;
void DigestStream::add(const void* data, size_t nbytes) { XXH3_64bits_update(state_->hash, data, nbytes); }
uint64_t DigestStream::value() const { return XXH3_64bits_digest(state_->hash); }

std::string digest_text(uint64_t digest) { return fmt::format("{:016x}", digest); }

std::optional<uint64_t> digest_from(std::string_view text) {
  uint64_t digest = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), digest, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return digest;
}

}  // namespace shoal
