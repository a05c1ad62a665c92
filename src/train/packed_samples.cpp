// See packed_samples.h.
#include "train/packed_samples.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "shoal/error.h"

namespace shoal::train {

PackedSamples::PackedSamples(const TokenSource& source, const CutOptions& cut) : source_(source), cut_(cut) {
  SHOAL_CHECK(cut.sequence > 0);
  if (source.documents() == 0) {
    throw Error("--pack",
                fmt::format("{} does not say where its documents end. Make it again with `shoal tokenize`, from files "
                            "of rows (.jsonl, .parquet) or several files, or leave --pack out.",
                            source.describe()));
  }
  facts_.packed = cut.packing != Packing::off;
  facts_.conversations = source.has_mask();
  facts_.documents = source.documents();
  const int64_t kept = source.documents() - validation_of(source.documents(), cut.validation);
  const auto rows_of = [&](int64_t first, int64_t last) {
    std::vector<DocumentPart> pieces = pieces_of(first, last);
    return facts_.packed ? pack(std::move(pieces), cut.sequence, cut.seed) : pad(std::move(pieces));
  };
  train_ = rows_of(0, kept);
  validation_ = rows_of(kept, source.documents());
  facts_.rows = train_.rows() + validation_.rows();
  for (const PackedRows* rows : {&train_, &validation_}) {
    for (const DocumentPart& piece : rows->pieces) {
      facts_.places += piece.places();
      facts_.learned += piece.learned;
    }
  }
}

std::vector<DocumentPart> PackedSamples::pieces_of(int64_t first, int64_t last) {
  std::vector<DocumentPart> pieces;
  for (int64_t document = first; document < last; ++document) {
    const int64_t begin = source_.document_begin(document);
    add_document(begin, source_.document_begin(document + 1) - begin, pieces);
  }
  return pieces;
}

void PackedSamples::add_document(int64_t begin, int64_t numel, std::vector<DocumentPart>& pieces) {
  const int64_t most = cut_.sequence + 1;
  if (numel < 2) {
    ++facts_.too_short;
    return;
  }
  facts_.longer += numel > most;
  const auto add = [&](int64_t from, int64_t count) {
    const int64_t learned = source_.count_learned(from + 1, count - 1);
    if (learned > 0) pieces.push_back({from, count, learned});
    return learned > 0;
  };
  if (!facts_.conversations) {
    // The last token of a part is the first of the next, so that every token but the document's first is a target.
    for (int64_t done = 0; done + 1 < numel; done += cut_.sequence) add(begin + done, std::min(most, numel - done));
    return;
  }
  // The middle of a conversation means nothing without its begin.
  const int64_t kept = std::min(numel, most);
  facts_.lost_tokens += numel - kept;
  if (!add(begin, kept)) ++facts_.nothing_learned;
}

PackedSamples::Span PackedSamples::pieces_in(int64_t sample) const {
  SHOAL_CHECK(sample >= 0 && sample < train() + validation());
  const bool trains = sample < train();
  const PackedRows& rows = trains ? train_ : validation_;
  const auto row = static_cast<size_t>(trains ? sample : sample - train());
  return {rows.pieces.data() + rows.firsts[row], rows.pieces.data() + rows.firsts[row + 1]};
}

std::vector<int64_t> PackedSamples::read(int64_t sample, Row row) const {
  std::vector<int64_t> lengths, tokens;
  std::vector<uint8_t> learned;
  int64_t taken = 0;
  const Span span = pieces_in(sample);
  for (const DocumentPart* piece = span.begin; piece != span.end; ++piece) {
    tokens.resize(static_cast<size_t>(piece->numel));
    learned.resize(static_cast<size_t>(piece->numel));
    source_.read(piece->begin, piece->numel, tokens.data());
    source_.read_learned(piece->begin, piece->numel, learned.data());
    for (int64_t i = 0; i < piece->places(); ++i) {
      const auto next = static_cast<size_t>(i) + 1;
      row.tokens[taken + i] = tokens[next - 1];
      row.targets[taken + i] = learned[next] != 0 ? tokens[next] : kNotLearned;
    }
    taken += piece->places();
    lengths.push_back(piece->places());
  }
  SHOAL_CHECK(taken > 0 && taken <= cut_.sequence);
  // Empty places are in documents no longer than the row's own: the longest may choose the rotary angles of all.
  const int64_t longest = *std::ranges::max_element(lengths);
  for (int64_t empty = taken; empty < cut_.sequence; empty += lengths.back()) {
    lengths.push_back(std::min(longest, cut_.sequence - empty));
  }
  std::fill(row.tokens + taken, row.tokens + cut_.sequence, 0);
  std::fill(row.targets + taken, row.targets + cut_.sequence, kNotLearned);
  return lengths;
}

int64_t PackedSamples::learned(int64_t sample) const {
  int64_t learned = 0;
  const Span span = pieces_in(sample);
  for (const DocumentPart* piece = span.begin; piece != span.end; ++piece) learned += piece->learned;
  return learned;
}

std::string PackedSamples::made_of() const {
  const std::string unlearned = facts_.nothing_learned > 0
                                    ? fmt::format(" ({} left out: nothing in their first {} tokens is learned)",
                                                  facts_.nothing_learned, cut_.sequence)
                                    : "";
  return fmt::format("{} {}{} make", source_.documents(), facts_.conversations ? "conversations" : "documents",
                     unlearned);
}

std::string describe(const PackingFacts& facts, int64_t sequence) {
  const auto share = [](int64_t part, int64_t of) {
    return of == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(of);
  };
  const char* name = facts.conversations ? "conversations" : "documents";
  std::string text = fmt::format("{} {}{} {} rows of {} tokens, {:.1f} % full", format_count(facts.documents), name,
                                 facts.packed ? " packed into" : ", one a row, in", format_count(facts.rows),
                                 format_count(sequence), share(facts.places, facts.rows * sequence));
  if (facts.conversations) {
    text += fmt::format("; {:.1f} % of their tokens are learned", share(facts.learned, facts.places));
  }
  if (facts.longer > 0 && facts.conversations) {
    text += fmt::format("; {} longer than --sequence lose {} tokens behind it", format_count(facts.longer),
                        format_count(facts.lost_tokens));
  } else if (facts.longer > 0) {
    text += fmt::format("; {} longer than --sequence are cut into several", format_count(facts.longer));
  }
  if (facts.nothing_learned > 0) {
    text += fmt::format("; {} left out, of which nothing is learned", format_count(facts.nothing_learned));
  }
  if (facts.too_short > 0) text += fmt::format("; {} of one token or none left out", format_count(facts.too_short));
  return text;
}

}  // namespace shoal::train
