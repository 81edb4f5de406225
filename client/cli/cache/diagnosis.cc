// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cache/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor::cli {
namespace {

// What a search looks at: few tokens of few layers. Its result is then checked on all.
constexpr int64_t kSampledTokens = 64;
constexpr size_t kSampledLayers = 3;
constexpr int64_t kAllTokens = std::numeric_limits<int64_t>::max();

// A neighbour whose difference is so much smaller shows that the specification is wrong, even if
// both are within the tolerance of a coarse code.
constexpr double kMuchBetter = 0.7;

std::string Rms(double value) { return absl::StrFormat("%.2g", value); }

using Group = std::vector<const CheckedLayer*>;

// Layers with equal specifications, in their order.
std::vector<Group> GroupsOf(absl::Span<const CheckedLayer> layers) {
  std::vector<Group> groups;
  for (const CheckedLayer& checked : layers) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return group.front()->layer.spec == checked.layer.spec;
    });
    if (same == groups.end()) {
      groups.push_back({&checked});
    } else {
      same->push_back(&checked);
    }
  }
  return groups;
}

std::vector<int64_t> NumbersOf(const Group& group) {
  std::vector<int64_t> numbers;
  for (const CheckedLayer* checked : group) numbers.push_back(checked->layer.layer);
  return numbers;
}

// The first, the last and some between.
Group SampleOf(const Group& group) {
  if (group.size() <= kSampledLayers) return group;
  Group sample;
  for (size_t i = 0; i < kSampledLayers; ++i) {
    sample.push_back(group[i * (group.size() - 1) / (kSampledLayers - 1)]);
  }
  return sample;
}

// Changes, and how the layers compare with them.
struct Candidate {
  std::vector<const Change*> changes;
  double relative_rms = 0;  // the largest of a layer
  bool fits = false;
};

// Searches the neighbours of a group. Threads: one.
class Search {
 public:
  Search(const Client& client, const Group& group, const ModelSpecs& model)
      : client_(client), group_(group), sample_(SampleOf(group)), model_(model) {}

  absl::Status Start() {
    const LayerCase& layer = group_.front()->layer;
    double amplitude = 1;
    if (layer.spec.has_value()) {
      PHASOR_ASSIGN_OR_RETURN(const SpecDetails details, client_.ResolveSpec(*layer.spec));
      amplitude = details.amplitude;
    }
    changes_ = NeighboursOf(layer, amplitude, model_);
    return absl::OkStatus();
  }

  // Compares with changes; nullopt: they cannot be made.
  std::optional<Candidate> Try(const Group& layers, std::vector<const Change*> changes,
                               int64_t tokens) const {
    Candidate candidate{.changes = std::move(changes), .fits = true};
    for (const CheckedLayer* checked : layers) {
      LayerCase layer = checked->layer;
      for (const Change* change : candidate.changes) {
        if (!change->apply(&layer)) return std::nullopt;
      }
      const auto outcome = CompareLayer(client_, layer, tokens);
      if (!outcome.ok()) return std::nullopt;
      candidate.fits = candidate.fits && outcome->fits();
      const double found = outcome->difference.relative_rms();
      const double rms = std::isnan(found) ? std::numeric_limits<double>::infinity() : found;
      candidate.relative_rms = std::max(candidate.relative_rms, rms);
    }
    return candidate;
  }

  // Every single change that can be made.
  std::vector<Candidate> Singles() const {
    std::vector<Candidate> found;
    for (const Change& change : changes_) {
      auto candidate = Try(sample_, {&change}, kSampledTokens);
      if (candidate.has_value()) found.push_back(*std::move(candidate));
    }
    return found;
  }

  // The candidate that fits all tokens of all layers, or else the nearest one.
  std::optional<Candidate> Best() const {
    std::vector<Candidate> found = Singles();
    std::optional<Candidate> best = Choose(found);
    if (best.has_value() && best->fits) return best;
    std::vector<Candidate> pairs;
    for (size_t i = 0; i < found.size(); ++i) {
      for (size_t k = i + 1; k < found.size(); ++k) {
        const Change* const a = found[i].changes.front();
        const Change* const b = found[k].changes.front();
        if (!Combine(a->kind, b->kind)) continue;
        auto candidate = Try(sample_, {a, b}, kSampledTokens);
        if (candidate.has_value()) pairs.push_back(*std::move(candidate));
      }
    }
    const std::optional<Candidate> pair = Choose(pairs);
    if (!pair.has_value()) return best;
    if (pair->fits || !best.has_value()) return pair;
    return pair->relative_rms < 0.5 * best->relative_rms ? pair : best;
  }

  const Group& sample() const { return sample_; }

 private:
  // "No rotation" says less than other changes that fit, so it is the last choice.
  static bool Before(const Candidate& a, const Candidate& b) {
    const auto rank = [](const Candidate& c) {
      return std::pair(!c.fits, c.fits && c.changes.front()->kind == "rotation");
    };
    return std::pair(rank(a), a.relative_rms) < std::pair(rank(b), b.relative_rms);
  }

  std::optional<Candidate> Choose(std::vector<Candidate> found) const {
    std::stable_sort(found.begin(), found.end(), Before);
    for (const Candidate& candidate : found) {
      if (!candidate.fits) break;
      auto whole = Try(group_, candidate.changes, kAllTokens);
      if (whole.has_value() && whole->fits) return whole;
    }
    for (const Candidate& candidate : found) {
      auto whole = Try(group_, candidate.changes, kAllTokens);
      if (whole.has_value()) return whole;
    }
    return std::nullopt;
  }

  const Client& client_;
  const Group& group_;
  const Group sample_;
  const ModelSpecs& model_;
  std::vector<Change> changes_;
};

std::string ChangesText(const Candidate& candidate) {
  std::string text;
  for (const Change* change : candidate.changes) {
    absl::StrAppend(&text, text.empty() ? "" : "; and with ", change->says);
  }
  return text;
}

Diagnosis DiagnosisOf(const Group& group, const Candidate& candidate) {
  Diagnosis diagnosis{
      .layers = NumbersOf(group), .fits = candidate.fits, .relative_rms = candidate.relative_rms};
  for (const Change* change : candidate.changes) diagnosis.kinds.push_back(change->kind);
  return diagnosis;
}

// What the comparison itself shows, before any neighbour; empty: nothing.
std::string PlainFault(const Group& group) {
  bool all_zero = false, not_finite = false;
  for (const CheckedLayer* checked : group) {
    all_zero = all_zero || checked->outcome.all_zero;
    not_finite = not_finite || !std::isfinite(checked->outcome.difference.rms);
  }
  if (not_finite) return "keys are NaN or infinite: no sizes or codes fit, or the cache is broken";
  if (all_zero) return "all keys are zero: these slots were never written";
  return "";
}

// Where most rows fit, the specification is right and the other rows hold something else.
std::string DamagedRows(const Group& group) {
  int64_t bad = 0, rows = 0;
  for (const CheckedLayer* checked : group) {
    bad += checked->outcome.difference.bad_rows;
    rows += checked->outcome.rows;
  }
  if (2 * bad >= rows) return "";
  return StrCat("the specification fits ", rows - bad, " of ", rows,
                " rows, so it is right; the others hold other tokens' keys, or were not written");
}

double LargestRms(const Group& group) {
  double largest = 0;
  for (const CheckedLayer* checked : group) {
    largest = std::max(largest, checked->outcome.difference.relative_rms());
  }
  return largest;
}

std::string Capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 32);
  return text;
}

absl::StatusOr<Diagnosis> DiagnoseGroup(const Client& client, const Group& group,
                                        const ModelSpecs& model) {
  const std::string name = Capital(LayersText(NumbersOf(group)));
  Diagnosis none{.layers = NumbersOf(group), .relative_rms = LargestRms(group)};
  const std::string fault = PlainFault(group);
  if (!fault.empty()) {
    none.says = StrCat(name, ": ", fault, ".");
    return none;
  }
  Search search(client, group, model);
  PHASOR_RETURN_IF_ERROR(search.Start());
  const std::optional<Candidate> best = search.Best();
  if (best.has_value() && best->fits) {
    Diagnosis diagnosis = DiagnosisOf(group, *best);
    diagnosis.says =
        StrCat(name, group.size() == 1 ? " fits" : " fit", " with ", ChangesText(*best), ".");
    return diagnosis;
  }
  const std::string damaged = DamagedRows(group);
  if (!damaged.empty()) {
    none.says = StrCat(name, ": ", damaged, ".");
    return none;
  }
  if (!best.has_value() || !(best->relative_rms < 0.7 * none.relative_rms)) {
    none.says = StrCat(name, ": no neighbour of the specification fits, and none comes near.");
    return none;
  }
  Diagnosis diagnosis = DiagnosisOf(group, *best);
  diagnosis.says = StrCat(name,
                          ": no neighbour of the specification fits; the nearest (relative "
                          "RMS ",
                          Rms(best->relative_rms), ") is ", ChangesText(*best), ".");
  return diagnosis;
}

}  // namespace

absl::StatusOr<std::vector<Diagnosis>> Diagnose(const Client& client,
                                                absl::Span<const CheckedLayer> layers,
                                                const ModelSpecs& model) {
  std::vector<Diagnosis> found;
  for (const Group& group : GroupsOf(layers)) {
    PHASOR_ASSIGN_OR_RETURN(found.emplace_back(), DiagnoseGroup(client, group, model));
  }
  return found;
}

absl::StatusOr<Doubts> FindDoubts(const Client& client, absl::Span<const CheckedLayer> layers,
                                  const ModelSpecs& model) {
  Doubts doubts;
  for (const Group& group : GroupsOf(layers)) {
    Search search(client, group, model);
    PHASOR_RETURN_IF_ERROR(search.Start());
    const std::optional<Candidate> given = search.Try(search.sample(), {}, kSampledTokens);
    if (!given.has_value()) continue;
    const std::string name = Capital(LayersText(NumbersOf(group)));
    const double floor = group.front()->layer.tolerance / 20;  // below: rounding
    for (const Candidate& candidate : search.Singles()) {
      if (!candidate.fits) continue;
      const bool better =
          given->relative_rms > floor && candidate.relative_rms < kMuchBetter * given->relative_rms;
      const auto whole = better ? search.Try(group, candidate.changes, kAllTokens) : std::nullopt;
      if (whole.has_value() && whole->fits) {
        Diagnosis wrong = DiagnosisOf(group, *whole);
        wrong.says = StrCat(name, group.size() == 1 ? " fits" : " fit", " much better with ",
                            ChangesText(*whole), ".");
        doubts.wrong.push_back(std::move(wrong));
      } else {
        doubts.also_fit.push_back(StrCat(name, ": ", ChangesText(candidate)));
      }
    }
  }
  return doubts;
}

std::string LayersText(const std::vector<int64_t>& layers) {
  std::string text = layers.size() == 1 ? "layer " : "layers ";
  for (size_t i = 0; i < layers.size(); ++i) {
    size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    absl::StrAppend(&text, i == 0 ? "" : ", ", layers[i]);
    if (last > i) absl::StrAppend(&text, last == i + 1 ? ", " : "-", layers[last]);
    i = last;
  }
  return text;
}

}  // namespace phasor::cli
