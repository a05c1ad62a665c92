// `shoal compare`: where two runs part, to the bit, and in which parameter. Times and bytes are not compared.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/run_record.h"

namespace shoal::train {

// A name, and what each of the two runs has for it, as text; "" where it has none.
struct TwoValues {
  std::string name;
  std::string first, second;
};

struct LineDifference {
  std::string file;  // "metrics.jsonl" or "eval.jsonl"
  int64_t step = 0;
  std::vector<TwoValues> columns;  // those of the step that differ, in the order of the file
};

struct StateDifference {
  int64_t step = 0;
  std::string unit, parameter;     // the first of the model's order
  std::vector<TwoValues> states;   // of it that differ: "weight", "first_moment", "second_moment"
  std::vector<std::string> equal;  // of it that do not
  int64_t differing = 0, of = 0;   // parameters
};

struct Comparison {
  std::string first, second;                 // their paths
  std::vector<int64_t> steps;                // that both have
  std::vector<int64_t> evaluated, digested;  // steps whose evaluations and digests both have
  std::vector<std::string> columns;          // that were compared
  std::optional<LineDifference> difference;  // the first; nothing: equal in all that was compared
  std::optional<StateDifference> state;      // of the first digests that differ
  std::vector<TwoValues> settings;           // that differ
  std::vector<std::string> notes;

  bool equal() const { return !difference && !state; }
  // The last common step before the first difference; nothing: they differ in the first one.
  std::optional<int64_t> equal_until() const;
};

// Throws shoal::Error when the runs have no step in common.
Comparison compare_runs(const RunRecord& first, const RunRecord& second);

// For people, line by line.
std::string to_text(const Comparison& comparison);
// For programs, one object.
std::string to_json(const Comparison& comparison);

}  // namespace shoal::train
