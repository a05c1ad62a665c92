// See packing.h.
#include "train/packing.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/mix.h"

namespace shoal::train {

PackedRows pack(std::vector<DocumentPart> pieces, int64_t sequence, uint64_t key) {
  std::vector<int64_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const int64_t of_a = pieces[static_cast<size_t>(a)].numel, of_b = pieces[static_cast<size_t>(b)].numel;
    if (of_a != of_b) return of_a > of_b;
    const uint64_t key_a = mixed(key, static_cast<uint64_t>(a)), key_b = mixed(key, static_cast<uint64_t>(b));
    return key_a != key_b ? key_a < key_b : a < b;
  });

  std::map<int64_t, std::vector<int64_t>> open;  // rows by the room that is left in them
  std::vector<int64_t> row_of(pieces.size());
  std::vector<int64_t> counts;  // pieces of each row
  for (const int64_t index : order) {
    const int64_t places = pieces[static_cast<size_t>(index)].places();
    SHOAL_CHECK(places > 0 && places <= sequence, "{} places of {}", places, sequence);
    int64_t room = sequence, row = 0;
    if (const auto found = open.lower_bound(places); found != open.end()) {
      room = found->first;
      row = found->second.back();
      found->second.pop_back();
      if (found->second.empty()) open.erase(found);
    } else {
      row = static_cast<int64_t>(counts.size());
      counts.push_back(0);
    }
    row_of[static_cast<size_t>(index)] = row;
    ++counts[static_cast<size_t>(row)];
    if (room > places) open[room - places].push_back(row);
  }

  // The longest documents opened the first rows. Shuffled, so that an evaluation on some rows is one on all kinds.
  std::vector<int64_t> rows(counts.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::sort(rows.begin(), rows.end(), [&](int64_t a, int64_t b) {
    const uint64_t key_a = mixed(~key, static_cast<uint64_t>(a)), key_b = mixed(~key, static_cast<uint64_t>(b));
    return key_a != key_b ? key_a < key_b : a < b;
  });

  PackedRows packed;
  packed.firsts.push_back(0);
  std::vector<int64_t> next(counts.size());  // where the row's next piece goes
  for (const int64_t row : rows) {
    next[static_cast<size_t>(row)] = packed.firsts.back();
    packed.firsts.push_back(packed.firsts.back() + counts[static_cast<size_t>(row)]);
  }
  packed.pieces.resize(pieces.size());
  for (const int64_t index : order) {
    const auto at = static_cast<size_t>(index);
    packed.pieces[static_cast<size_t>(next[static_cast<size_t>(row_of[at])]++)] = pieces[at];
  }
  return packed;
}

PackedRows pad(std::vector<DocumentPart> pieces) {
  PackedRows rows;
  rows.firsts.resize(pieces.size() + 1);
  std::iota(rows.firsts.begin(), rows.firsts.end(), 0);
  rows.pieces = std::move(pieces);
  return rows;
}

}  // namespace shoal::train
