// The memory of pictures from save to save: when it is kept, and what is said when it cannot be had. How much it is
// says plan/save_memory.h. Asks how much is free only where the config does not say and the memory must be had anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace shoal::checkpoint {

struct PictureNeed {
  int64_t state = 0;  // bytes of the rank's file
  int64_t least = 0;  // that a save works with
  int64_t asked = 0;  // shoal.save_memory; 0: not said
  size_t held = 0;    // from an earlier save
};

// Bytes, in whole pages. `most` says what may be taken where nothing was asked for. What is held already is kept where
// it is enough, or was all that might be taken.
size_t needed_memory(const PictureNeed& need, const std::function<size_t()>& most);

struct PictureMemory {
  std::shared_ptr<std::byte> data;
  size_t nbytes = 0;
};

// Takes it by `take`; where that fails half as much, and again, down to `least`; where that fails too, says what to do.
PictureMemory take_memory(size_t nbytes, size_t least, const std::function<std::shared_ptr<std::byte>(size_t)>& take);

}  // namespace shoal::checkpoint
