// A figure of runs as SVG, without a browser: loss, gradient norm, tokens a second and learning rate over steps, for a
// paper, a README, or a page whose reader runs no scripts. Pure but for the runs' files.
#pragma once

#include <string>
#include <vector>

#include "report/run_folder.h"

namespace shoal::report {

struct FigureOptions {
  int width = 900, height = 560;
};
std::string plain_figure(const std::vector<RunFolder>& runs, const FigureOptions& options = {});

// Round numbers between two others, `count` or a few less, as an axis is marked.
std::vector<double> ticks_between(double low, double high, int count);
// "0.25", "1,200", "3.2e-05".
std::string number_text(double value);

}  // namespace shoal::report
