// What a config quantizes on its way between ranks, in words: for the banner of a run and for `shoal plan`. Pure.
#pragma once

#include <string>

#include "layout/flat_layout.h"
#include "shoal/config.h"

namespace shoal {

// "" where the config asks for nothing of the kind; otherwise what travels in how many bits and what that means to the
// results, or why nothing does.
std::string quantized_text(const ModelLayout& layout, const Config& config);

// Whether some sums of gradients travel in blocks.
bool quantizes_gradients(const ModelLayout& layout, const Config& config);

}  // namespace shoal
