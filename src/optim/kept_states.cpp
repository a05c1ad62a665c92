// See kept_states.h.
#include "optim/kept_states.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "device/host_queue.h"
#include "kernels/convert.h"
#include "plan/from_config.h"

namespace shoal {

namespace {

const std::byte* weight_to_read(int unit, int flat, const Weights& weights) {
  if (!weights.is_sharded(unit, flat)) return weights.whole(unit, flat);
  weights.fetch(unit);
  return weights.shard(unit, flat);
}

std::byte* weight_to_change(int unit, int flat, Weights& weights) {
  if (!weights.is_sharded(unit, flat)) return weights.whole(unit, flat);
  weights.change(unit);
  return weights.shard(unit, flat);
}

StateTiers tiers_of(const Config& config, const Queue& queue) {
  return {.offload = config.zero.offload_optimizer,
          .aio = config.aio,
          .verify = config.shoal.verify_offload,
          .ring_nbytes = queue.device() >= 0 ? state_ring_nbytes(config) : 0};
}

KeptStates::Range common(KeptStates::Range a, KeptStates::Range b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

}  // namespace

KeptStates::KeptStates(const ModelLayout& layout, const Config& config, int rank, Queue& queue,
                       const std::shared_ptr<Ledger>& ledger)
    : layout_(layout),
      moments_(moments_of(config.optimizer)),
      moment_dtype_(shoal::moment_dtype(config)),
      narrow_masters_(has_narrow_masters(config)),
      queue_(queue),
      memory_(cut_states(layout, chunk_options(config, rank)), tiers_of(config, queue), queue, ledger) {
  const std::vector<StateChunk>& chunks = memory_.chunks();
  const auto is_off_device = [](const StateChunk& chunk) { return chunk.tier != Tier::device; };
  const bool has_host = queue_.device() >= 0 || updates_ahead(config, /*on_gpu=*/false);
  if (has_host && std::any_of(chunks.begin(), chunks.end(), is_off_device)) {
    host_ = make_host_queue([this](int64_t numel, const auto& work) { queue_.on_host(numel, work); });
  }
  for (const UnitLayout& unit : layout_.units) flats_.emplace_back(unit.flats.size());
  for (int index = 0; index < static_cast<int>(chunks.size()); ++index) {
    const StateChunk& chunk = chunks[static_cast<size_t>(index)];
    Flat& flat = flats_[static_cast<size_t>(chunk.unit)][static_cast<size_t>(chunk.flat)];
    if (flat.begin == flat.end) flat = {index, index, chunk.begin, chunk.begin};
    flat.last_chunk = index + 1;
    flat.end = chunk.end;
  }
}

Queue& KeptStates::queue_of(int chunk) const {
  const bool off_device = memory_.chunks()[static_cast<size_t>(chunk)].tier != Tier::device;
  return off_device && host_ ? *host_ : queue_;
}

const FlatLayout& KeptStates::flat_of(int index) const {
  const StateChunk& chunk = memory_.chunks()[static_cast<size_t>(index)];
  return layout_.units[static_cast<size_t>(chunk.unit)].flats[static_cast<size_t>(chunk.flat)];
}

std::vector<int> KeptStates::chunks_of(int unit) const {
  std::vector<int> chunks;
  for (const Flat& flat : flats_[static_cast<size_t>(unit)]) {
    for (int chunk = flat.first_chunk; chunk < flat.last_chunk; ++chunk) chunks.push_back(chunk);
  }
  return chunks;
}

KeptStates::Range KeptStates::kept_range(int unit, int flat_index) const {
  const Flat& flat = flats_[static_cast<size_t>(unit)][static_cast<size_t>(flat_index)];
  return {flat.begin, flat.end};
}

void KeptStates::for_chunks(int unit, int flat_index, Range range,
                            const std::function<void(int, int64_t, int64_t)>& use) const {
  const Flat& flat = flats_[static_cast<size_t>(unit)][static_cast<size_t>(flat_index)];
  for (int index = flat.first_chunk; index < flat.last_chunk; ++index) {
    const StateChunk& chunk = memory_.chunks()[static_cast<size_t>(index)];
    const Range part = common(range, {chunk.begin, chunk.end});
    if (part.begin < part.end) use(index, part.begin, part.end);
  }
}

size_t KeptStates::moment_offset(int which, int index, int64_t element) const {
  SHOAL_CHECK_LT(which, moments_);
  const StateChunk& chunk = memory_.chunks()[static_cast<size_t>(index)];
  return (which == 0 ? chunk.first : chunk.second) +
         static_cast<size_t>(element - chunk.begin) * nbytes_of(moment_dtype_);
}

size_t KeptStates::master_offset(int index, int64_t element) const {
  const StateChunk& chunk = memory_.chunks()[static_cast<size_t>(index)];
  return chunk.master +
         static_cast<size_t>(element - chunk.begin) * master_nbytes(flat_of(index).dtype, narrow_masters_);
}

void KeptStates::get_moment(int which, int unit, int flat, Range range, float* values) const {
  for_chunks(unit, flat, range, [&](int chunk, int64_t begin, int64_t end) {
    const std::byte* moment = memory_.look(chunk) + moment_offset(which, chunk, begin);
    float* out = values + (begin - range.begin);
    const int64_t numel = end - begin;
    if (moment_dtype_ == DType::f32) {
      queue_of(chunk).download(out, moment, static_cast<size_t>(numel) * sizeof(float));
      return;
    }
    std::vector<std::byte> kept(static_cast<size_t>(numel) * nbytes_of(moment_dtype_));
    queue_of(chunk).download(kept.data(), moment, kept.size());
    kernels::convert(kept.data(), moment_dtype_, out, DType::f32, numel);
  });
}

void KeptStates::set_moment(int which, int unit, int flat, Range range, const float* values) {
  for_chunks(unit, flat, range, [&](int chunk, int64_t begin, int64_t end) {
    std::byte* moment = memory_.change(chunk) + moment_offset(which, chunk, begin);
    const float* in = values + (begin - range.begin);
    const int64_t numel = end - begin;
    if (moment_dtype_ == DType::f32) {
      queue_of(chunk).upload(moment, in, static_cast<size_t>(numel) * sizeof(float));
      return;
    }
    std::vector<std::byte> kept(static_cast<size_t>(numel) * nbytes_of(moment_dtype_));
    kernels::convert(in, DType::f32, kept.data(), moment_dtype_, numel);
    queue_of(chunk).upload(moment, kept.data(), kept.size());
  });
}

void KeptStates::set_values(int unit, int flat_index, Range range, const float* values, Weights& weights) {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat_index)];
  const bool split = has_masters(layout) && layout.dtype == DType::bf16;

  const Range kept_weights = weight_range(unit, flat_index, weights);
  const Range kept = common(range, kept_weights);
  if (kept.begin < kept.end) {
    std::byte* weight = weight_to_change(unit, flat_index, weights) +
                        static_cast<size_t>(kept.begin - kept_weights.begin) * nbytes_of(layout.dtype);
    const float* in = values + (kept.begin - range.begin);
    const int64_t numel = kept.end - kept.begin;
    std::vector<std::byte> made(static_cast<size_t>(numel) * nbytes_of(layout.dtype));
    if (split) {
      // The weight is the high half of its master everywhere, also where another rank keeps the remainder.
      auto* out = reinterpret_cast<uint16_t*>(made.data());
      queue_.on_host(numel, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = kernels::split_weight(in[i]);
      });
    } else {
      kernels::convert(in, DType::f32, made.data(), layout.dtype, numel);
    }
    queue_.upload(weight, made.data(), made.size());
  }

  if (!has_masters(layout)) return;
  for_chunks(unit, flat_index, range, [&](int chunk, int64_t begin, int64_t end) {
    std::byte* master = memory_.change(chunk) + master_offset(chunk, begin);
    const float* in = values + (begin - range.begin);
    const int64_t numel = end - begin;
    if (!split) {
      queue_of(chunk).upload(master, in, static_cast<size_t>(numel) * sizeof(float));
      return;
    }
    std::vector<uint16_t> remainders(static_cast<size_t>(numel));
    queue_.on_host(numel, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) remainders[static_cast<size_t>(i)] = kernels::split_remainder(in[i]);
    });
    queue_of(chunk).upload(master, remainders.data(), remainders.size() * sizeof(uint16_t));
  });
}

void KeptStates::get_values(int unit, int flat_index, Range range, float* values, const Weights& weights) const {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat_index)];
  const Flat& flat = flats_[static_cast<size_t>(unit)][static_cast<size_t>(flat_index)];
  const Range kept = weight_range(unit, flat_index, weights);
  SHOAL_CHECK(kept.begin <= range.begin && range.end <= kept.end, "elements {} to {} are not kept", range.begin,
              range.end);
  const int64_t numel = range.end - range.begin;
  std::vector<std::byte> weight(static_cast<size_t>(numel) * nbytes_of(layout.dtype));
  queue_.download(weight.data(),
                  weight_to_read(unit, flat_index, weights) +
                      static_cast<size_t>(range.begin - kept.begin) * nbytes_of(layout.dtype),
                  weight.size());
  if (!has_masters(layout)) {
    kernels::convert(weight.data(), layout.dtype, values, DType::f32, numel);
    return;
  }
  SHOAL_CHECK(flat.begin <= range.begin && range.end <= flat.end, "masters {} to {} are not kept", range.begin,
              range.end);
  std::vector<uint16_t> remainders(layout.dtype == DType::bf16 ? static_cast<size_t>(numel) : 0);
  for_chunks(unit, flat_index, range, [&](int chunk, int64_t begin, int64_t end) {
    const std::byte* master = memory_.look(chunk) + master_offset(chunk, begin);
    const int64_t at = begin - range.begin;
    void* to = remainders.empty() ? static_cast<void*>(values + at) : remainders.data() + at;
    queue_of(chunk).download(to, master,
                             static_cast<size_t>(end - begin) * master_nbytes(layout.dtype, narrow_masters_));
  });
  if (!remainders.empty()) kernels::join(weight.data(), remainders.data(), values, numel);
}

bool KeptStates::has_masters(const FlatLayout& flat) const {
  return flat.trainable && master_nbytes(flat.dtype, narrow_masters_) > 0;
}

KeptStates::Range KeptStates::weight_range(int unit, int flat, const Weights& weights) const {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat)];
  const Cut cut = weights.cuts().weights(layout);
  return {cut.begin, cut.end};
}

void KeptStates::reset_param(int unit, int flat_index, const Piece& piece, const std::byte* whole, Weights& weights) {
  const FlatLayout& layout = layout_.units[static_cast<size_t>(unit)].flats[static_cast<size_t>(flat_index)];
  const size_t element = nbytes_of(layout.dtype);
  const auto part_of = [&](int64_t begin, int64_t end) {
    const int64_t first = std::max(begin, piece.offset);
    return std::pair(first, std::max(first, std::min(end, piece.offset + piece.numel)));
  };
  if (weights.is_sharded(unit, flat_index)) {
    const Cut cut = weights.cuts().weights(layout);
    const auto [first, last] = part_of(cut.begin, cut.end);
    if (first < last) {
      weights.put(unit, queue_,
                  weight_to_change(unit, flat_index, weights) + static_cast<size_t>(first - cut.begin) * element,
                  whole + static_cast<size_t>(first) * element, static_cast<size_t>(last - first) * element);
    }
  }
  if (!has_masters(layout)) return;
  for_chunks(unit, flat_index, {piece.offset, piece.offset + piece.numel}, [&](int chunk, int64_t first, int64_t last) {
    std::byte* master = memory_.change(chunk) + master_offset(chunk, first);
    const std::byte* written = whole + static_cast<size_t>(first) * element;
    Queue& queue = queue_of(chunk);
    if (layout.dtype == DType::bf16) {
      queue.zero(master, static_cast<size_t>(last - first) * sizeof(uint16_t));
    } else if (&queue == &queue_) {
      queue.convert(written, layout.dtype, master, DType::f32, last - first);
    } else {
      std::vector<std::byte> there(static_cast<size_t>(last - first) * element);
      queue_.download(there.data(), written, there.size());
      queue.convert(there.data(), layout.dtype, master, DType::f32, last - first);
    }
  });
}

}  // namespace shoal
