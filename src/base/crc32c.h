// CRC-32C (Castagnoli), by which TFRecord files check what they hold. A byte at a time: for records of some dozen
// bytes.
#pragma once

#include <cstdint>
#include <string_view>

namespace shoal {

uint32_t crc32c(std::string_view bytes);

}  // namespace shoal
