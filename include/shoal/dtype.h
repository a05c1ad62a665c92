// Element types that Shoal stores and communicates. Names and sizes only; conversions live in src/kernels/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shoal {

enum class DType : uint8_t { f32, bf16, f16 };

constexpr size_t nbytes_of(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::f16: return "fp16";
  }
  return "?";
}

}  // namespace shoal
