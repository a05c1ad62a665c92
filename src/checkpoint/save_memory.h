// How much host memory a picture of the state takes. Pure but for the question how much is free, which is asked only
// where the config does not say and the memory must be had anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace shoal::checkpoint {

struct PictureNeed {
  int64_t state = 0;  // bytes of the rank's file
  int64_t least = 0;  // that a save works with
  int64_t asked = 0;  // shoal.save_memory; 0: not said
  size_t held = 0;    // from an earlier save
};

// Bytes, in whole pages: all of the state, but at most what was asked for, or of what is free. What is held already is
// kept where it is enough, or was all that was free.
size_t picture_nbytes(const PictureNeed& need, const std::function<size_t()>& free_nbytes);

}  // namespace shoal::checkpoint
