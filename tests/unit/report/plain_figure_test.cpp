#include "report/plain_figure.h"

#include <gmock/gmock.h>

#include <limits>

namespace shoal::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

RunFolder run_of(const std::string& name, const std::vector<double>& losses) {
  RunFolder run;
  run.name = name;
  for (const double loss : losses) {
    run.steps.steps.push_back(static_cast<int64_t>(run.steps.steps.size()) + 1);
    run.steps.values["loss"].push_back(loss);
  }
  return run;
}

TEST(Ticks, AreRoundNumbers) {
  EXPECT_THAT(ticks_between(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(ticks_between(1.5, 9.3, 5), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(ticks_between(-0.1, 0.1, 2), ElementsAre(-0.1, 0, 0.1));
  for (const auto& [low, high] :
       {std::pair(1.0, 1.0), std::pair(2.0, 1.0), std::pair(0.0, std::numeric_limits<double>::infinity())}) {
    EXPECT_THAT(ticks_between(low, high, 5), IsEmpty());
  }
}

TEST(Numbers, AreShort) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(0.25), "0.25");
  EXPECT_EQ(number_text(0.000032), "3.2e-05");
  EXPECT_EQ(number_text(12345.6), "12,346");
}

TEST(PlainFigure, DrawsWhatThereIs) {
  const std::string svg = plain_figure({run_of("a<b", {3, 2, 1}), run_of("c", {3, 3})});
  EXPECT_THAT(svg, ::testing::StartsWith("<svg "));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr(">a&lt;b</text>"));
  EXPECT_THAT(svg, HasSubstr(">learning rate</text>"));
  EXPECT_THAT(svg, HasSubstr(">nothing to draw yet</text>")) << "there is no learning rate";
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(PlainFigure, HasRoomForOddRuns) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<double>& losses :
       {std::vector<double>{}, {1}, {none, none}, {none, 2, none, 3}, {0, 0}, std::vector<double>(5000, 2)}) {
    const std::string svg = plain_figure({run_of("a", losses)});
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
    EXPECT_LT(svg.size(), 30'000u);
  }
}

}  // namespace
}  // namespace shoal::report
