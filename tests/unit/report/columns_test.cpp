#include "report/columns.h"

#include <gmock/gmock.h>

#include <cmath>

#include "temp_folder.h"

namespace shoal::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempFolder;

TEST(Columns, AreWhatTheLinesHave) {
  const TempFolder folder;
  const Columns columns =
      read_columns(folder.write("m", "{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 2, \"lr\": 0.5}\n"));
  EXPECT_THAT(columns.steps, ElementsAre(1, 2));
  EXPECT_THAT(columns.of("loss"), ElementsAre(3, 2));
  ASSERT_EQ(columns.of("lr").size(), 2u);
  EXPECT_TRUE(std::isnan(columns.of("lr")[0]));
  EXPECT_EQ(columns.of("lr")[1], 0.5);
  EXPECT_THAT(columns.of("other"), IsEmpty());
  EXPECT_THAT(columns.notes, IsEmpty());
}

TEST(Columns, OfAFileThatIsNotThereOrEmptyThereAreNone) {
  const TempFolder folder;
  EXPECT_THAT(read_columns(folder / "none").steps, IsEmpty());
  EXPECT_THAT(read_columns(folder.write("m", "")).steps, IsEmpty());
}

TEST(Columns, AColumnThatEndsEarlyIsFilledUp) {
  const TempFolder folder;
  const Columns columns = read_columns(folder.write("m", "{\"step\": 1, \"a\": 3}\n{\"step\": 2, \"b\": 2}\n"));
  ASSERT_EQ(columns.of("a").size(), 2u);
  EXPECT_TRUE(std::isnan(columns.of("a")[1]));
}

// As a run leaves it that is being written, or was killed.
TEST(Columns, ALastLineThatIsCutOffIsNotedAndLeftOut) {
  const TempFolder folder;
  const Columns columns = read_columns(folder.write("m", "{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"lo"));
  EXPECT_THAT(columns.steps, ElementsAre(1));
  EXPECT_THAT(columns.notes, ElementsAre(HasSubstr("the last line of metrics.jsonl is cut off")));
}

TEST(Columns, LinesInTheMiddleThatCannotBeReadAreCounted) {
  const TempFolder folder;
  const Columns columns =
      read_columns(folder.write("m", "{\"step\": 1, \"loss\": 3}\n{\"st\nnoise\n{\"step\": 4, \"loss\": 1}\n"));
  EXPECT_THAT(columns.steps, ElementsAre(1, 4));
  EXPECT_THAT(columns.notes,
              ElementsAre("2 lines of metrics.jsonl cannot be read, the first of them line 2, left out"));
}

TEST(Columns, OfStepsThatStandTwiceTheLaterLinesCount) {
  const TempFolder folder;
  std::string lines;
  for (const int step : {1, 2, 3, 2, 3})
    lines += "{\"step\": " + std::to_string(step) + ", \"loss\": " + std::to_string(lines.size()) + "}\n";
  const Columns columns = read_columns(folder.write("m", lines));
  EXPECT_THAT(columns.steps, ElementsAre(1, 2, 3));
  EXPECT_GT(columns.of("loss")[1], 60);
  EXPECT_THAT(columns.notes, ElementsAre("the steps from 2 on stand twice: the later lines count"));
}

}  // namespace
}  // namespace shoal::report
