// Numbers of a run as CSV files of a folder, one a name, as DeepSpeed's csv_monitor lays them out: "Train/Samples/lr"
// is Train_Samples_lr.csv with a header "step,lr" and a row a step, lines ending in CR LF, numbers as Python writes
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace shoal::train {

// As Python's repr: the digits that read back to the same number; "nan", "inf", "-inf".
std::string python_text(double number);

class CsvLog {
 public:
  // Makes the folder. `resumed_at`: of what files hold already, rows above that step are dropped, for their steps are
  // taken again, and so is a row that was cut off. Throws shoal::Error when the folder cannot be written.
  CsvLog(std::string folder, std::optional<int64_t> resumed_at);

  // The whole row or nothing. Throws shoal::Error when it cannot be written.
  void add(const std::string& name, int64_t step, double value);

 private:
  void drop_later_rows(const std::string& path) const;

  std::string folder_;
  std::optional<int64_t> resumed_at_;
  std::set<std::string> begun_;  // names of which a row was written
};

}  // namespace shoal::train
