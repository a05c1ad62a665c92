// Plays ranks as threads in a test: run_ranks(4, [](Group& group) { ... }) gives each thread its group and rethrows
// the first exception that a rank let out. outcomes_of keeps the message of each rank instead ("" for none).
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shoal/group.h"

namespace shoal::testing {

using Groups = std::vector<std::unique_ptr<Group>>;
using RankBody = std::function<void(std::unique_ptr<Group>&)>;

inline std::vector<std::exception_ptr> play_ranks(Groups groups, const RankBody& body) {
  std::vector<std::exception_ptr> errors(groups.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    threads.emplace_back([&, rank] {
      std::unique_ptr<Group> group = std::move(groups[rank]);
      try {
        body(group);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void run_ranks(Groups groups, const std::function<void(Group&)>& body) {
  for (const std::exception_ptr& error : play_ranks(std::move(groups), [&](auto& group) { body(*group); })) {
    if (error) std::rethrow_exception(error);
  }
}

inline Groups make_groups(int world) {
  if (world > 1) return make_thread_groups(world);
  Groups one;
  one.push_back(make_single_group());
  return one;
}

inline void run_ranks(int world, const std::function<void(Group&)>& body) { run_ranks(make_groups(world), body); }

inline std::vector<std::string> outcomes_of(Groups groups, const RankBody& body) {
  std::vector<std::string> texts;
  for (const std::exception_ptr& error : play_ranks(std::move(groups), body)) {
    texts.emplace_back();
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& caught) {
      texts.back() = caught.what();
    }
  }
  return texts;
}

}  // namespace shoal::testing
