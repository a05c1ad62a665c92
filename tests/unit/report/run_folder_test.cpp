#include "report/run_folder.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;
using testing::TempFolder;

TEST(RunFolder, HasWhatTheFolderHas) {
  const TempFolder folder;
  folder.write("läuft/metrics.jsonl", "{\"step\": 1, \"loss\": 3}\n");
  folder.write("läuft/eval.jsonl", "{\"step\": 1, \"loss\": 2.5}\n");
  folder.write("läuft/events.jsonl", "{\"event\": \"start\", \"step\": 0, \"time\": 1}\n{\"event\": \"sa");
  folder.write("läuft/run.json", R"({"model": "toy"})");
  folder.write("läuft/config.json", "{");
  folder.write("läuft/trace-rank-1.json", "{}");
  folder.write("läuft/trace.json", "{}");
  for (const char* path : {"läuft", "läuft/", "läuft/metrics.jsonl"}) {
    const RunFolder run = read_run_folder(folder / path);
    EXPECT_EQ(run.name, "läuft") << path;
    EXPECT_THAT(run.steps.steps, ElementsAre(1));
    EXPECT_THAT(run.evaluations.of("loss"), ElementsAre(2.5));
    EXPECT_EQ(run.events.size(), 1u);
    EXPECT_EQ(run.about.find("model")->as_text(), "toy");
    EXPECT_TRUE(run.config.is_null());
    EXPECT_THAT(run.traces, ElementsAre("trace-rank-1.json", "trace.json"));
    EXPECT_THAT(run.notes,
                ElementsAre("a line of events.jsonl cannot be read, and is left out", HasSubstr("config.json")));
  }
}

TEST(RunFolder, OfARunWithoutAStepThereIsLittle) {
  const TempFolder folder;
  folder.write("run/metrics.jsonl", "");
  const RunFolder run = read_run_folder(folder / "run");
  EXPECT_THAT(run.steps.steps, IsEmpty());
  EXPECT_THAT(run.notes, IsEmpty());
  EXPECT_TRUE(run.about.is_null());
}

TEST(RunFolder, AFolderThatIsNoRunIsAnError) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "other");
  EXPECT_THAT(message_of([&] { read_run_folder(folder / "other"); }),
              HasSubstr("other] holds no metrics.jsonl and no run.json."));
  EXPECT_THAT(message_of([&] { read_run_folder(folder / "none"); }), HasSubstr("none] is not there, or is no folder."));
  EXPECT_THAT(message_of([&] { read_run_folder(folder.write("file", "x")); }),
              HasSubstr("file] is not there, or is no folder."));
}

}  // namespace
}  // namespace shoal::report
