#include "kernels/isa.h"

#include <fmt/format.h>

#include <cstdlib>

#include "kernels/isa_parts.h"
#include "shoal/error.h"

namespace shoal::kernels {
namespace {

constexpr const char* kPlace = "kernels SHOAL_ISA";

IsaVersion version_of(Isa isa) {
  switch (isa) {
    case Isa::reference: {
      static const Kernels kernels{Isa::reference, update_reference(), reduce_reference(), convert_reference(),
                                   blocks_reference()};
      return {&kernels, ""};
    }
    case Isa::neon: return neon_version();
    case Isa::avx2: return avx2_version();
    case Isa::avx512: return avx512_version();
  }
  return {};
}

std::string usable_names() {
  std::string names;
  for (Isa isa : kEveryIsa) {
    if (why_unusable(isa).empty()) names += fmt::format("{}{}", names.empty() ? "" : ", ", isa_name(isa));
  }
  return names;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::reference: return "reference";
    case Isa::neon: return "neon";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
  }
  return "?";
}

std::string why_unusable(Isa isa) { return version_of(isa).reason; }

const Kernels& kernels_of(Isa isa) {
  const IsaVersion version = version_of(isa);
  if (version.kernels == nullptr) {
    throw Error(kPlace, fmt::format("{} cannot run here: {}. Use one of: {}, or leave it unset.", isa_name(isa),
                                    version.reason, usable_names()));
  }
  return *version.kernels;
}

Isa choose_isa(const char* wanted) {
  if (wanted == nullptr || *wanted == '\0') {
    for (Isa isa : {Isa::avx512, Isa::avx2, Isa::neon}) {
      if (why_unusable(isa).empty()) return isa;
    }
    return Isa::reference;
  }
  for (Isa isa : kEveryIsa) {
    if (isa_name(isa) == wanted) return kernels_of(isa).isa;
  }
  throw Error(kPlace, fmt::format("\"{}\" is not an instruction set of ours. Use one of: {}, or leave it unset.",
                                  wanted, usable_names()));
}

const Kernels& active_kernels() {
  static const Kernels& chosen = kernels_of(choose_isa(std::getenv("SHOAL_ISA")));
  return chosen;
}

}  // namespace shoal::kernels
