// A figure as PNG, by a Chromium without a window where there is one.
#pragma once

#include <string>

namespace shoal::report {

// $SHOAL_CHROMIUM, or the first of chromium, chromium-browser and google-chrome in PATH; "" where there is none.
std::string find_browser();

struct Picture {
  int width = 900, height = 560;
  double scale = 2;  // pixels of the file to one of these
};
// Draws an SVG with that browser into a file. Throws shoal::Error.
void write_png(const std::string& svg, const std::string& path, const Picture& picture, const std::string& browser);

}  // namespace shoal::report
