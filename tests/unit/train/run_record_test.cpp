#include "train/run_record.h"

#include <gmock/gmock.h>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;
using ::testing::Pair;
using testing::TempFolder;

TEST(ReadRun, ReadsAFolderOrItsMetrics) {
  const TempFolder folder;
  folder.write("run/metrics.jsonl", "{\"step\": 1, \"loss\": 2.5}\n{\"step\": 2, \"loss\": null}\n");
  folder.write("run/eval.jsonl", "{\"step\": 2, \"loss\": 2.25}\n");
  folder.write("run/digests.jsonl", "{\"step\": 2, \"digest\": \"00\", \"units\": {}}\n");
  folder.write("run/run.json", R"({"seed": 1, "model": "toy"})");
  folder.write("run/config.json", R"({"zero_optimization": {"stage": 2}, "betas": [0.9, 0.5]})");
  for (const std::string& path : {folder / "run", folder / "run/metrics.jsonl"}) {
    const RunRecord run = read_run(path);
    EXPECT_EQ(run.path, path);
    EXPECT_EQ(run.metrics.size(), 2u);
    EXPECT_TRUE(run.metrics.at(2).find("loss")->is_null());
    EXPECT_EQ(run.evaluations.size(), 1u);
    EXPECT_EQ(run.digests.size(), 1u);
    EXPECT_THAT(run.settings, ElementsAre(Pair("seed", "1"), Pair("model", "\"toy\""),
                                          Pair("zero_optimization.stage", "2"), Pair("betas", "[0.9, 0.5]")));
    EXPECT_THAT(run.notes, IsEmpty());
  }
}

TEST(ReadRun, AFileOfAnotherNameStandsAlone) {
  const TempFolder folder;
  folder.write("a.jsonl", "{\"step\": 1, \"loss\": NaN}");
  folder.write("run.json", R"({"seed": 1})");
  const RunRecord run = read_run(folder / "a.jsonl");
  EXPECT_EQ(run.metrics.at(1).find("loss")->as_text(), "NaN") << "as Python writes it, and the end of the line missing";
  EXPECT_THAT(run.settings, IsEmpty());
}

TEST(ReadRun, LinesThatCannotBeReadAreLeftOutAndNoted) {
  const TempFolder folder;
  folder.write("m.jsonl", "{\"step\": 1}\n{\"st\n{\"loss\": 1}\n{\"step\": 4}\n{\"step\": 5, \"lo");
  const RunRecord run = read_run(folder / "m.jsonl");
  EXPECT_EQ(run.metrics.size(), 2u);
  EXPECT_THAT(run.notes, ElementsAre(HasSubstr("line 2 cannot be read"), HasSubstr("line 3 cannot be read"),
                                     HasSubstr("the last line is cut off")));
  folder.write("run/metrics.jsonl", "{\"step\": 1}\n");
  folder.write("run/run.json", "{");
  EXPECT_THAT(read_run(folder / "run").notes, ElementsAre(HasSubstr("settings are not compared")));
}

TEST(ReadRun, WhatIsNoRunIsAnError) {
  const TempFolder folder;
  folder.write("empty/metrics.jsonl", "");
  folder.write("twice.jsonl", "{\"step\": 1}\n{\"step\": 2}\n{\"step\": 1}\n");
  folder.write("other/notes.txt", "");
  const auto message = [&](const std::string& path) { return message_of([&] { read_run(folder / path); }); };
  EXPECT_THAT(message("none"), HasSubstr("is not there, or is no file. Give a run's folder"));
  EXPECT_THAT(message("other"), HasSubstr("holds no metrics.jsonl. Give a run's folder"));
  EXPECT_THAT(message("empty"), HasSubstr("has no line of a step"));
  EXPECT_THAT(message("twice.jsonl"), HasSubstr("step 1 stands twice, in lines 1 and 3"));
  EXPECT_THAT(message_of([] { read_run("/dev/null"); }), HasSubstr("is no file"));
}

}  // namespace
}  // namespace shoal::train
