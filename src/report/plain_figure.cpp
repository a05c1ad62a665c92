// See plain_figure.h.
#include "report/plain_figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "report/page.h"
#include "report/reduce.h"

namespace shoal::report {

namespace {

constexpr std::array<const char*, 6> kColors = {"#2563a8", "#c2571a", "#2e7d4f", "#8a4fa3", "#b03052", "#6b6b1f"};
constexpr size_t kColumns = 400;  // points of a curve: what the eye sees at that width

struct Panel {
  const char* title;
  const char* column;
  double x, y, width, height;
};
struct Range {
  double low = INFINITY, high = -INFINITY;
  void see(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool is_empty() const { return low > high; }
};

struct Curve {
  std::vector<double> steps, least, most, mean;
};

Curve curve_of(const RunFolder& run, const char* column) {
  Curve curve;
  const std::vector<double>& values = run.steps.of(column);
  if (values.empty()) return curve;
  const size_t each = steps_a_point(values.size(), kColumns);
  const Points points = reduce(values, each);
  for (size_t i = 0; i < points.mean.size(); ++i) {
    curve.steps.push_back(static_cast<double>(run.steps.steps[std::min(values.size(), (i + 1) * each) - 1]));
    curve.least.push_back(points.least[i]);
    curve.most.push_back(points.most[i]);
    curve.mean.push_back(points.mean[i]);
  }
  return curve;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                     escaped_html(text));
}

std::string draw_panel(const Panel& panel, const std::vector<RunFolder>& runs) {
  std::vector<Curve> curves;
  Range across, up;
  for (const RunFolder& run : runs) {
    curves.push_back(curve_of(run, panel.column));
    for (const double step : curves.back().steps) across.see(step);
    for (const double value : curves.back().least) up.see(value);
    for (const double value : curves.back().most) up.see(value);
  }
  const double left = panel.x + 56, right = panel.x + panel.width - 20, top = panel.y + 24,
               bottom = panel.y + panel.height - 22;
  std::string svg = text_at(left, panel.y + 12, "start", panel.title, " font-weight=\"600\"");
  if (up.is_empty()) return svg + text_at((left + right) / 2, (top + bottom) / 2, "middle", "nothing to draw yet");
  if (up.low == up.high) {
    const double room = up.low == 0 ? 1 : std::fabs(up.low) * 0.1;
    up = {up.low - room, up.high + room};
  }
  if (across.low == across.high) across = {across.low - 1, across.high + 1};
  const auto x_of = [&](double step) {
    return left + (step - across.low) / (across.high - across.low) * (right - left);
  };
  const auto y_of = [&](double value) { return bottom - (value - up.low) / (up.high - up.low) * (bottom - top); };
  for (const double tick : ticks_between(up.low, up.high, 6)) {
    svg += fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#8884\"/>\n", left, y_of(tick), right);
    svg += text_at(left - 6, y_of(tick) + 4, "end", number_text(tick));
  }
  for (const double tick : ticks_between(across.low, across.high, 5)) {
    if (tick == std::floor(tick)) svg += text_at(x_of(tick), bottom + 16, "middle", number_text(tick));
  }
  for (size_t i = 0; i < curves.size(); ++i) {
    const Curve& curve = curves[i];
    const char* color = kColors[i % kColors.size()];
    std::string line, band;
    bool open = false;
    for (size_t at = 0; at < curve.mean.size(); ++at) {
      if (!std::isfinite(curve.mean[at])) {
        open = false;
        continue;
      }
      const double x = x_of(curve.steps[at]);
      line += fmt::format("{}{:.1f} {:.1f}", open ? 'L' : 'M', x, y_of(curve.mean[at]));
      if (curve.most[at] > curve.least[at]) {
        band += fmt::format("M{:.1f} {:.1f}V{:.1f}", x, y_of(curve.least[at]), y_of(curve.most[at]));
      }
      open = true;
    }
    if (!band.empty()) svg += fmt::format("<path d=\"{}\" stroke=\"{}\" stroke-opacity=\".35\"/>\n", band, color);
    svg += fmt::format("<path d=\"{}\" stroke=\"{}\" stroke-width=\"1.6\" stroke-linecap=\"round\"/>\n", line, color);
  }
  return svg;
}

}  // namespace

std::vector<double> ticks_between(double low, double high, int count) {
  std::vector<double> ticks;
  if (!(high > low) || !std::isfinite(high - low) || count < 1) return ticks;
  const double rough = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) {
      step = factor * power;
      break;
    }
  }
  for (double tick = std::ceil(low / step); tick * step <= high + step * 1e-9; ++tick) ticks.push_back(tick * step);
  return ticks;
}

std::string number_text(double value) {
  const double size = std::fabs(value);
  if (size >= 1e15 || (size < 1e-3 && size > 0)) return fmt::format("{:.3g}", value);
  if (size >= 1000) return format_count(static_cast<int64_t>(std::llround(value)));
  return fmt::format("{:.4g}", value);
}

std::string plain_figure(const std::vector<RunFolder>& runs, const FigureOptions& options) {
  const double names = 22.0 * static_cast<double>((runs.size() + 2) / 3) + 8;
  const double width = options.width / 2.0, height = (options.height - names) / 2.0;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" fill=\"none\" "
      "font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<style>text{{fill:#333}}@media "
      "(prefers-color-scheme:dark){{text{{fill:#ccc}}}}</style>\n",
      options.width, options.height, options.width, options.height);
  for (size_t i = 0; i < runs.size(); ++i) {
    const double x = 56 + static_cast<double>(i % 3) * (options.width - 64) / 3.0,
                 y = 16 + 22.0 * static_cast<double>(i / 3);
    svg += fmt::format("<path d=\"M{:.1f} {:.1f}h16\" stroke=\"{}\" stroke-width=\"3\"/>\n", x, y - 4,
                       kColors[i % kColors.size()]);
    svg += text_at(x + 22, y, "start", runs[i].name);
  }
  for (const Panel& panel : {Panel{"loss", "loss", 0, names, width, height},
                             Panel{"gradient norm", "grad_norm", width, names, width, height},
                             Panel{"tokens a second", "tokens_per_s", 0, names + height, width, height},
                             Panel{"learning rate", "lr", width, names + height, width, height}}) {
    svg += draw_panel(panel, runs);
  }
  return svg + "</svg>\n";
}

}  // namespace shoal::report
