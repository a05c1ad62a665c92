// What the writer and the reader of manifest.json share: the words of the format and the seal, a checksum of all text
// before it, so that a manifest that was cut off or changed is not taken for a whole one.
#pragma once

#include <string>
#include <string_view>

namespace shoal::checkpoint {

inline constexpr std::string_view kFormatName = "shoal checkpoint";
inline constexpr std::string_view kSealKey = "  \"manifest_checksum\": \"";

// `text`: a JSON object up to and with the comma after its last member. Adds the seal and closes the object.
std::string seal(std::string text);

}  // namespace shoal::checkpoint
