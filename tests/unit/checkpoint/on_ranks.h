// Plays every rank as a thread, for tests of what ranks do together. The first error of a rank is thrown here.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "shoal/group.h"

namespace shoal::testing {

inline void on_ranks(int world, const std::function<void(Group&)>& play) {
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(world, std::chrono::seconds(60));
  std::vector<std::exception_ptr> errors(groups.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        play(*groups[rank]);
      } catch (const std::exception& error) {
        errors[rank] = std::current_exception();
        groups[rank]->abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace shoal::testing
