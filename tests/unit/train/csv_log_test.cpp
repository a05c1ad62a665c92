#include "train/csv_log.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;

TEST(PythonText, IsPythonsRepr) {
  EXPECT_EQ(python_text(0), "0.0");
  EXPECT_EQ(python_text(-3), "-3.0");
  EXPECT_EQ(python_text(0.1), "0.1");
  EXPECT_EQ(python_text(1e-5), "1e-05");
  EXPECT_EQ(python_text(0.0001), "0.0001");
  EXPECT_EQ(python_text(65536), "65536.0");
  EXPECT_EQ(python_text(1e16), "1e+16");
  EXPECT_EQ(python_text(123456789012345.0), "123456789012345.0");
  EXPECT_EQ(python_text(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(python_text(std::nan("")), "nan");
  EXPECT_EQ(python_text(-std::nan("")), "nan");
  EXPECT_EQ(python_text(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(python_text(-std::numeric_limits<double>::infinity()), "-inf");
}

TEST(CsvLog, WritesAFileAName) {
  const TempFolder folder;
  CsvLog log(folder / "a/b", std::nullopt);
  log.add("Train/Samples/lr", 8, 0.1);
  log.add("Train/Samples/lr", 16, std::nan(""));
  log.add("my loss", 8, 2);
  EXPECT_EQ(folder.read("a/b/Train_Samples_lr.csv"), "step,lr\r\n8,0.1\r\n16,nan\r\n");
  EXPECT_EQ(folder.read("a/b/my_loss.csv"), "step,my loss\r\n8,2.0\r\n");
}

TEST(CsvLog, ARunThatResumesDropsWhatItTakesAgain) {
  const TempFolder folder;
  folder.write("x.csv", "step,x\r\n8,0.1\r\n16,0.2\r\n24,0.3\r\n32,0.");
  folder.write("other.csv", "step,other\r\n99,1.0\r\n");
  CsvLog log(folder.path(), 16);
  log.add("x", 24, 0.5);
  log.add("x", 32, 0.6);
  log.add("y", 24, 1);
  EXPECT_EQ(folder.read("x.csv"), "step,x\r\n8,0.1\r\n16,0.2\r\n24,0.5\r\n32,0.6\r\n");
  EXPECT_EQ(folder.read("y.csv"), "step,y\r\n24,1.0\r\n");
  EXPECT_EQ(folder.read("other.csv"), "step,other\r\n99,1.0\r\n") << "not a name of this run";
}

TEST(CsvLog, ARunThatBeginsAppendsToWhatIsThere) {
  const TempFolder folder;
  folder.write("x.csv", "step,x\r\n8,0.1\r\n");
  CsvLog(folder.path(), std::nullopt).add("x", 8, 3);
  EXPECT_EQ(folder.read("x.csv"), "step,x\r\n8,0.1\r\n8,3.0\r\n");
}

TEST(CsvLog, SaysWhyItCannotWrite) {
  const TempFolder folder;
  folder.write("file", "x");
  EXPECT_THAT(message_of([&] { CsvLog(folder / "file/logs", std::nullopt); }), HasSubstr("[log csv] "));
  CsvLog log(folder / "logs", std::nullopt);
  std::filesystem::remove(folder / "logs");
  EXPECT_THAT(message_of([&] { log.add("x", 1, 1); }), HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace shoal::train
