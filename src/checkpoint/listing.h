// What stands in a folder of checkpoints, for people to look at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal::checkpoint {

struct Listed {
  std::string path;
  int64_t step = 0;
  bool is_latest = false;  // what a resume would take
  std::string problem;     // why it is not complete; "": complete. The rest is known only then.
  int world = 0;
  int64_t params = 0;
  int64_t numel = 0;
  int64_t nbytes = 0;
  bool weights_only = false;
  bool trained_only = false;  // frozen parameters are left out
};

// Of a folder of checkpoints, or of a run, all of them by step; of one checkpoint that one. Throws when there is none.
std::vector<Listed> list_checkpoints(const std::string& path);

}  // namespace shoal::checkpoint
