// SPDX-License-Identifier: Apache-2.0
// Reads caches from files, makes one MoveKeys call and writes what it changed.
#include "client/cli/move_command.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/commands.h"
#include "client/cli/layout_flags.h"
#include "client/cli/npy.h"
#include "client/cli/output.h"
#include "client/cli/spec_flags.h"
#include "kernels/base/bounded.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/spec_json.h"
#include "kernels/tensor/npy.h"

namespace phasor::cli {
namespace {

using Json = nlohmann::ordered_json;

// A whole file, and where its tensor begins: after the header of an .npy, otherwise at byte 0.
struct CacheFile {
  std::string path;
  Bytes bytes;
  int64_t begin = 0;
  std::optional<TensorDesc> tensor;  // of an .npy

  absl::Span<std::byte> span() { return {bytes.data(), static_cast<size_t>(bytes.size())}; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(bytes.size())};
  }
};

absl::StatusOr<CacheFile> ReadFile(const std::string& path) {
  std::error_code error;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  std::ifstream stream(path, std::ios::binary);
  if (error || !stream) {
    return absl::NotFoundError(
        StrCat(path, ": cannot be opened; must be a file that you may read"));
  }
  CacheFile file{.path = path};
  PHASOR_ASSIGN_OR_RETURN(file.bytes, Bytes::Allocate(size));
  if (!stream.read(reinterpret_cast<char*>(file.bytes.data()), size)) {
    return InvalidAt(path, "cannot be read to its end; must be a whole file");
  }
  if (!path.ends_with(".npy")) return file;
  PHASOR_ASSIGN_OR_RETURN(const NpyHeader header,
                          ParseNpyHeader(file.text(), size, /*u2_as_bf16=*/true, path,
                                         /*bytes=*/true));
  file.begin = header.data_begin;
  file.tensor = header.tensor;
  return file;
}

// How the elements of an .npy store keys. `given`: the code of a flag, which says what bytes and
// u2, the bits of any type of 16 bits, are.
absl::StatusOr<KeyCode> CodeOf(Dtype dtype, std::optional<KeyCode> given, std::string_view path) {
  const bool bits = SizeOf(dtype) == 1 ||
                    (dtype == Dtype::kBFloat16 && given.has_value() && UnitBytes(*given) == 2);
  if (bits && given.has_value()) return *given;
  std::optional<KeyCode> own;
  if (dtype == Dtype::kFloat32) own = KeyCode::kFloat32;
  if (dtype == Dtype::kFloat16) own = KeyCode::kFloat16;
  if (dtype == Dtype::kBFloat16) own = KeyCode::kBFloat16;
  if (!own.has_value()) {
    return bits
               ? InvalidAt(path, "bytes do not say how keys are stored; must be given, with --code")
               : InvalidAt(path, "elements of ", Name(dtype), "; must be f4, f2, u2 or bytes");
  }
  if (given.value_or(*own) == *own) return *own;
  return InvalidAt(path, "elements of ", Name(dtype), ", but keys are said to be ", Name(*given),
                   " (--code, or another file); must agree");
}

// Whether the last axes of an .npy, the heads and their lanes, are those of a dense layout.
absl::Status CheckShape(const TensorDesc& tensor, const KeyLayout& layout, std::string_view path) {
  const auto& shape = tensor.shape;
  const int64_t last = shape.empty() ? 0 : shape.back();
  const int64_t before = shape.size() > 1 ? shape[shape.size() - 2] : 0;
  const int64_t lanes = BoundedProduct(std::max<int64_t>(layout.heads, 0), layout.head_dim);
  if (last == lanes) return absl::OkStatus();  // both in one axis
  if (last == layout.head_dim && before == layout.heads) return absl::OkStatus();
  return InvalidAt(path, "shape ", ShapeText(shape), " does not end with --heads (", layout.heads,
                   ") and lanes of a head (", layout.head_dim,
                   "); must, or give --layout or distances");
}

std::string FormatDifferences(const std::vector<KeyDifference>& differences) {
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < differences.size(); ++i) {
    const KeyDifference& found = differences[i];
    rows.push_back({StrCat(i), ShortNumber(found.relative_rms()), ShortNumber(found.rms),
                    ShortNumber(found.max_abs), StrCat(found.bad_rows),
                    IndexText(found.first_bad_token), IndexText(found.first_bad_slot),
                    IndexText(found.first_bad_head)});
  }
  return FormatTable({"layer", "relative rms", "rms", "max", "bad rows", "token", "slot", "head"},
                     rows);
}

Json JsonOf(const MoveResult& result) {
  Json json = {{"info", ToJson(result.info)},
               {"tokens", result.tokens},
               {"moved_bytes", result.moved_bytes}};
  json["specs"] = Json::array();
  for (const MoveResult::SpecInfo& spec : result.specs) {
    json["specs"].push_back(
        {{"fingerprint", spec.fingerprint}, {"from_fingerprint", spec.from_fingerprint}});
  }
  for (const KeyDifference& found : result.differences) {
    json["differences"].push_back(ToJson(found));
  }
  return json;
}

std::string Format(const MoveResult& result) {
  std::string text = FormatDifferences(result.differences);
  if (result.differences.empty()) text.clear();
  absl::StrAppend(&text, result.tokens, " tokens, ", result.moved_bytes, " bytes");
  for (const MoveResult::SpecInfo& spec : result.specs) {
    absl::StrAppend(&text, ", spec ", spec.fingerprint);
    if (spec.from_fingerprint != spec.fingerprint) {
      absl::StrAppend(&text, " from ", spec.from_fingerprint);
    }
  }
  absl::StrAppend(&text, ", numerics ", result.info.numerics_version, ", backend ",
                  result.info.backend, "\n");
  return text;
}

class MoveCommand final : public Command {
 public:
  explicit MoveCommand(CLI::App& parent)
      : Command(parent, "move-keys",
                "Move the rotated keys of a cache to other positions, or compare caches") {
    AddSpecFlags(*app(), spec_);
    app()->add_option("--from-spec", from_spec_,
                      "File with the spec that rotated the keys, as --spec; default that spec");
    AddFileFlags();
    AddLayoutFlags(*app(), layout_, offset_bytes_);
    for (const char* flag : {"--pages", "--heads"}) app()->get_option(flag)->required();
    AddTokenFlags();
  }

  absl::Status Run(std::ostream& out) override {
    PHASOR_RETURN_IF_ERROR(CheckFiles());
    PHASOR_RETURN_IF_ERROR(ReadCaches());
    PHASOR_ASSIGN_OR_RETURN(const Client client, Connect());
    PHASOR_RETURN_IF_ERROR(FillLayout(client));
    PHASOR_RETURN_IF_ERROR(CheckShapes());
    PHASOR_RETURN_IF_ERROR(FillTokens());
    PHASOR_RETURN_IF_ERROR(FillLayers());
    PHASOR_ASSIGN_OR_RETURN(const MoveResult result, client.MoveKeys(call_));
    const size_t first_written = to_inputs_.empty() ? 0 : inputs_.size();
    for (size_t i = 0; i < outputs_.size(); ++i) {
      PHASOR_RETURN_IF_ERROR(WriteFile(outputs_[i], {files_[first_written + i].text()}));
    }
    out << (common_.json ? JsonOf(result).dump(2) + "\n" : Format(result));
    return Verdict(result);
  }

 private:
  void AddFileFlags() {
    app()
        ->add_option("--input", inputs_,
                     "Cache with the keys: .npy, or a file of bytes. Repeat the flag for layers in "
                     "files of their own")
        ->required()
        ->allow_extra_args(false);
    app()
        ->add_option("--to-input", to_inputs_,
                     "Cache that the keys go to, one for each --input; default the same cache")
        ->allow_extra_args(false);
    app()
        ->add_option("--output", outputs_,
                     "File to write, one for each --input: the cache that the keys went to, whole")
        ->allow_extra_args(false);
    auto* compare = app()->add_flag_callback(
        "--compare", [this] { call_.mode = MoveMode::kCompare; },
        "Write nothing: compare what a move would give with the keys at the destination. Fails if "
        "a row differs by more than --tolerance");
    app()
        ->add_flag_callback(
            "--in-place", [this] { call_.mode = MoveMode::kMove; },
            "Turn the keys in their slots; otherwise they are copied to other slots")
        ->excludes(compare);
    app()->add_option("--tolerance", call_.tolerance,
                      "Relative RMS difference that a row may have; default by --code");
  }

  void AddTokenFlags() {
    app()
        ->add_option("--run", runs_,
                     "first:count:from:to or first:count:from:to:to_first: so many tokens from "
                     "place `first` of the block table on, from position `from` to `to`, go to "
                     "place `to_first`. Repeat the flag for several runs")
        ->required()
        ->allow_extra_args(false);
    app()
        ->add_option("--block-table", table_.block_table,
                     "Pages of the sequence, comma separated; default all in order")
        ->delimiter(',');
    app()
        ->add_option("--to-block-table", table_.to_block_table,
                     "Pages that the tokens go to; default --block-table")
        ->delimiter(',');
    app()
        ->add_option("--unrotated", unrotated_,
                     "Layers whose keys are not rotated, comma separated; they are copied")
        ->delimiter(',');
    app()->add_flag("--model", model_,
                    "Turn each layer as the one of its number in the model that --config "
                    "describes; layers that do not rotate are copied");
    app()->add_flag("--keys-only", keys_only_, "Leave values where they are");
  }

  absl::Status CheckFiles() const {
    const auto check = [&](const char* flag, size_t count) {
      if (count == 0 || count == inputs_.size()) return absl::OkStatus();
      return InvalidAt(flag, "given ", count, " times; must be as often as --input (",
                       inputs_.size(), ")");
    };
    PHASOR_RETURN_IF_ERROR(check("--to-input", to_inputs_.size()));
    PHASOR_RETURN_IF_ERROR(check("--output", outputs_.size()));
    const bool compares = call_.mode == MoveMode::kCompare;
    if (compares == outputs_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(compares
                                          ? "--output: given; must not be with --compare"
                                          : "--output: not given; must be given, or --compare");
  }

  // Reads all files and takes the code from those that say it.
  absl::Status ReadCaches() {
    std::optional<KeyCode> code;
    if (app()->count("--code") > 0) code = layout_.code;
    for (const auto* const paths : {&inputs_, &to_inputs_}) {
      for (const std::string& path : *paths) {
        PHASOR_ASSIGN_OR_RETURN(CacheFile file, ReadFile(path));
        if (file.tensor.has_value()) {
          PHASOR_ASSIGN_OR_RETURN(code, CodeOf(file.tensor->dtype, code, path));
        }
        files_.push_back(std::move(file));
      }
    }
    layout_.code = code.value_or(layout_.code);
    for (CacheFile& file : files_) call_.pools.push_back(file.span());
    return absl::OkStatus();
  }

  absl::Status CheckShapes() const {
    const bool dense = layout_.name.empty() && !HasDistances(layout_);
    for (const CacheFile& file : files_) {
      if (!dense || !file.tensor.has_value() || SizeOf(file.tensor->dtype) == 1) continue;
      PHASOR_RETURN_IF_ERROR(CheckShape(*file.tensor, layout_, file.path));
    }
    return absl::OkStatus();
  }

  absl::Status FillLayout(const Client& client) {
    PHASOR_ASSIGN_OR_RETURN(layout_.head_dim, Width(client));
    if (!model_) spec_.head_dim = layout_.head_dim;
    call_.layouts = {layout_};
    KeySpec spec{.spec = spec_};
    if (!from_spec_.empty()) {
      PHASOR_ASSIGN_OR_RETURN(const CacheFile file, ReadFile(from_spec_));
      PHASOR_ASSIGN_OR_RETURN(spec.from_spec, SpecFromJson(file.text()));
    }
    call_.specs = {std::move(spec)};
    return absl::OkStatus();
  }

  // Lanes of a head.
  absl::StatusOr<int64_t> Width(const Client& client) const {
    if (spec_.head_dim.has_value()) return *spec_.head_dim;
    if (!model_) {
      PHASOR_ASSIGN_OR_RETURN(const SpecDetails details, client.ResolveSpec(spec_));
      return details.width;
    }
    PHASOR_ASSIGN_OR_RETURN(const ModelDetails model, client.ResolveModel(spec_));
    if (!model.specs.empty()) return model.specs[0].width;
    return Invalid("--model: no layer rotates; must be given with one that does");
  }

  absl::Status FillTokens() {
    KeyGroup& group = call_.groups.emplace_back();
    if (table_.block_table.empty()) {
      table_.block_table.resize(
          static_cast<size_t>(std::clamp<int64_t>(layout_.pages, 0, kMostPages)));
      std::iota(table_.block_table.begin(), table_.block_table.end(), int64_t{0});
    }
    for (const std::string& text : runs_) {
      PHASOR_ASSIGN_OR_RETURN(KeyRun run, ParseKeyRun(text));
      run.block_table = table_.block_table;
      run.to_block_table = table_.to_block_table;
      group.runs.push_back(std::move(run));
    }
    return absl::OkStatus();
  }

  absl::Status FillLayers() {
    const auto place = [&](size_t pool) {
      return KeyPlace{static_cast<int64_t>(pool), files_[pool].begin + offset_bytes_};
    };
    for (size_t i = 0; i < inputs_.size(); ++i) {
      for (int64_t layer = 0; layer < layout_.layers; ++layer) {
        KeyLayer& out = call_.layers.emplace_back();
        out.place = place(i);
        out.layer = layer;
        out.copy_values = !keys_only_;
        if (!to_inputs_.empty()) out.to_place = place(inputs_.size() + i);
        const auto number = static_cast<int64_t>(call_.layers.size()) - 1;
        const bool rotated =
            std::find(unrotated_.begin(), unrotated_.end(), number) == unrotated_.end();
        if (!rotated) continue;
        out.spec = 0;
        if (model_) out.model_layer = number;
      }
    }
    const auto count = static_cast<int64_t>(call_.layers.size());
    for (const int64_t number : unrotated_) {
      if (number >= 0 && number < count) continue;
      return Invalid("--unrotated: ", number, "; must be layers, in [0, ", count, ")");
    }
    const bool any_turns =
        std::any_of(call_.layers.begin(), call_.layers.end(),
                    [](const KeyLayer& layer) { return layer.spec.has_value(); });
    if (!any_turns) call_.specs.clear();
    return absl::OkStatus();
  }

  static absl::Status Verdict(const MoveResult& result) {
    const auto bad = std::count_if(result.differences.begin(), result.differences.end(),
                                   [](const KeyDifference& found) { return found.bad_rows > 0; });
    if (bad == 0) return absl::OkStatus();
    return absl::DataLossError(StrCat("--compare: ", bad, " of ", result.differences.size(),
                                      " layers differ; must be within --tolerance"));
  }

  static constexpr int64_t kMostPages = 1 << 20;

  MoveCall call_;
  Spec spec_;
  std::string from_spec_;
  KeyLayout layout_;
  int64_t offset_bytes_ = 0;
  std::vector<std::string> inputs_;
  std::vector<std::string> to_inputs_;
  std::vector<std::string> outputs_;
  std::vector<std::string> runs_;
  KeyRun table_;
  std::vector<int64_t> unrotated_;
  bool model_ = false;
  bool keys_only_ = false;
  std::vector<CacheFile> files_;
};

}  // namespace

absl::StatusOr<KeyRun> ParseKeyRun(std::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(std::string(text), ':');
  std::vector<int64_t> numbers;
  for (const std::string& part : parts) {
    int64_t number = 0;
    if (absl::SimpleAtoi(part, &number)) numbers.push_back(number);
  }
  if (numbers.size() != parts.size() || parts.size() < 4 || parts.size() > 5) {
    return Invalid("--run: ", text,
                   "; must be first:count:from:to or first:count:from:to:to_first");
  }
  KeyRun run{.first = numbers[0], .count = numbers[1], .from = numbers[2], .to = numbers[3]};
  if (numbers.size() == 5) run.to_first = numbers[4];
  return run;
}

std::unique_ptr<Command> MakeMoveCommand(CLI::App& parent) {
  return std::make_unique<MoveCommand>(parent);
}

}  // namespace phasor::cli
