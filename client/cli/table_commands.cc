// SPDX-License-Identifier: Apache-2.0
// The subcommands `bias` and `tables`: their flags and how they run.
#include <string>

#include "client/cli/commands.h"
#include "client/cli/npy.h"
#include "client/cli/output.h"
#include "client/cli/position_flags.h"
#include "client/cli/spec_flags.h"
#include "kernels/base/sha256.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/plan/bias_rule.h"
#include "kernels/tensor/tensor_desc.h"

namespace phasor::cli {
namespace {

using Json = nlohmann::ordered_json;

class BiasCommand final : public Command {
 public:
  explicit BiasCommand(CLI::App& parent)
      : Command(parent, "bias", "Compute attention biases [heads, queries, keys]") {
    app()->add_option("--preset", call_.spec.preset, PresetHelp());
    AddEnumFlag<BiasFamily>(
        *app(), "--family",
        {BiasFamily::kT5, BiasFamily::kClipped, BiasFamily::kSwin, BiasFamily::kAlibi,
         BiasFamily::kAlibiKey, BiasFamily::kDeberta},
        +[](BiasFamily family) { return Name(family); },
        [this](BiasFamily family) { call_.spec.family = family; },
        "Rule that turns a distance into a bias");
    app()
        ->add_option("--heads", call_.heads, "Number of heads; 1 for buckets")
        ->capture_default_str();
    query_positions_.Add(*app(), "query-");
    key_positions_.Add(*app(), "key-");
    app()->add_option("--num-buckets", call_.spec.num_buckets,
                      "Number of buckets, for t5 and deberta");
    app()->add_option("--max-distance", call_.spec.max_distance,
                      "Largest distance, for t5, clipped and deberta");
    app()->add_option("--bidirectional", call_.spec.bidirectional,
                      "For t5: true for an encoder, false for a decoder");
    app()
        ->add_option("--window", call_.spec.window, "For swin: height,width")
        ->delimiter(',')
        ->expected(2);
    auto* table =
        app()->add_option("--table", call_.table, "Name of a learned table of the server");
    app()
        ->add_option("--table-file", table_file_, ".npy [rows, heads] to use instead of --table")
        ->excludes(table);
    AddEnumFlag<Dtype>(
        *app(), "--dtype",
        {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16, Dtype::kInt32,
         Dtype::kInt64},
        +[](Dtype dtype) { return Name(dtype); }, [this](Dtype d) { call_.output_dtype = d; },
        "Type of the result; default float32. int32 and int64 return row numbers of the "
        "table");
    app()->add_option("--add-to", add_to_,
                      ".npy [heads, queries, keys] of scores to which the biases are added");
    app()->add_option("--output", output_, "Write the result to this .npy instead of printing it");
    result_.Add(*app());
  }

  absl::Status Run(std::ostream& out) override {
    PHASOR_ASSIGN_OR_RETURN(const Client client, Connect());
    if (query_positions_.given()) {
      PHASOR_ASSIGN_OR_RETURN(call_.query_positions, query_positions_.Get());
    }
    if (key_positions_.given()) {
      PHASOR_ASSIGN_OR_RETURN(call_.key_positions, key_positions_.Get());
    }
    NpyArray table, add_to;
    if (!table_file_.empty()) {
      PHASOR_ASSIGN_OR_RETURN(table, ReadNpy(table_file_, result_.u2_as_bf16));
      call_.table_values = table.view();
    }
    if (!add_to_.empty()) {
      PHASOR_ASSIGN_OR_RETURN(add_to, ReadNpy(add_to_, result_.u2_as_bf16));
      call_.add_to = add_to.view();
    }
    PHASOR_ASSIGN_OR_RETURN(const EncodeResult result, client.AttentionBias(call_));
    return Show(result, "tensor", output_, result_.columns, out);
  }

 private:
  static std::string PresetHelp() {
    std::string help = "One of ";
    for (const BiasPreset& preset : BiasPresets()) {
      help += StrCat(help.size() > 7 ? ", " : "", preset.name);
    }
    return help + "; the flags override it";
  }

  BiasCall call_{.heads = 1};
  PositionFlags query_positions_;
  PositionFlags key_positions_;
  std::string table_file_;
  std::string add_to_;
  std::string output_;
  ResultFlags result_;
};

std::string ShapeOf(const TableInfo& table) { return ShapeText(table.tensor.shape); }

Json ToJson(const TableInfo& table) {
  return {{"name", table.name},
          {"dtype", std::string(Name(table.tensor.dtype))},
          {"shape", table.tensor.shape},
          {"sha256", table.sha256}};
}

std::string Format(const std::vector<TableInfo>& tables) {
  std::vector<std::vector<std::string>> rows;
  for (const TableInfo& table : tables) {
    rows.push_back(
        {table.name, std::string(Name(table.tensor.dtype)), ShapeOf(table), table.sha256});
  }
  return FormatTable({"name", "dtype", "shape", "sha256"}, rows);
}

std::string FormatStorage(const TableStorage& storage) {
  if (storage.directory.empty()) return "kept nowhere: this server has no --tables-dir\n";
  return StrCat("kept in ", storage.directory, " of the server's host\n");
}

class TablesListCommand final : public Command {
 public:
  explicit TablesListCommand(CLI::App& parent)
      : Command(parent, "list", "List the tables of a server", Runs::kOnServer) {}

  absl::Status Run(std::ostream& out) override {
    PHASOR_ASSIGN_OR_RETURN(const Client client, Connect());
    PHASOR_ASSIGN_OR_RETURN(const std::vector<TableInfo> tables, client.ListTables());
    Json json = Json::array();
    for (const TableInfo& table : tables) json.push_back(ToJson(table));
    if (common_.json) {
      out << json.dump(2) << "\n";
      return absl::OkStatus();
    }
    PHASOR_ASSIGN_OR_RETURN(const TableStorage storage, client.GetTableStorage());
    out << Format(tables) << FormatStorage(storage);
    return absl::OkStatus();
  }
};

class TablesGetCommand final : public Command {
 public:
  explicit TablesGetCommand(CLI::App& parent)
      : Command(parent, "get", "Describe a table, or download it", Runs::kOnServer) {
    app()->add_option("name", name_, "Name of the table")->required();
    app()->add_option("--output", output_, "Write the table to this .npy (bfloat16 as u2)");
  }

  absl::Status Run(std::ostream& out) override {
    PHASOR_ASSIGN_OR_RETURN(const Client client, Connect());
    PHASOR_ASSIGN_OR_RETURN(const TableInfo table, client.GetTable(name_));
    if (!output_.empty()) PHASOR_RETURN_IF_ERROR(Download(client, table));
    out << (common_.json ? ToJson(table).dump(2) + "\n" : Format({table}));
    return absl::OkStatus();
  }

 private:
  // Downloads all rows of the table; they are its bytes.
  absl::Status Download(const Client& client, const TableInfo& table) const {
    const EncodeCall call{.positions = IntegerRange{0, 1, table.tensor.shape[0]},
                          .output_dtype = table.tensor.dtype,
                          .table = table.name};
    PHASOR_ASSIGN_OR_RETURN(const EncodeResult result, client.Encode(call));
    const auto* const bytes = reinterpret_cast<const char*>(result.bytes.data());
    if (Sha256Hex({bytes, static_cast<size_t>(result.bytes.size())}) != table.sha256) {
      return absl::AbortedError(
          StrCat("name: table '", table.name, "' was replaced while it was read; read it again"));
    }
    return WriteNpy(output_, {result.output, result.bytes.data(), result.bytes.size()});
  }

  std::string name_;
  std::string output_;
};

class TablesUploadCommand final : public Command {
 public:
  explicit TablesUploadCommand(CLI::App& parent)
      : Command(parent, "upload",
                "Upload a table under a name; replaces an uploaded table of that name",
                Runs::kOnServer) {
    app()->add_option("name", name_, "Name of the table; characters a-z 0-9 . _ -")->required();
    app()->add_option("file", file_, ".npy [positions, width] or [buckets, heads]")->required();
    app()->add_flag("--u2-as-bf16", u2_as_bf16_, kU2Help);
  }

  absl::Status Run(std::ostream& out) override {
    PHASOR_ASSIGN_OR_RETURN(const Client client, Connect());
    PHASOR_ASSIGN_OR_RETURN(NpyArray array, ReadNpy(file_, u2_as_bf16_));
    PHASOR_ASSIGN_OR_RETURN(const TableInfo table, client.CreateTable(name_, array.view()));
    out << (common_.json ? ToJson(table).dump(2) + "\n" : Format({table}));
    return absl::OkStatus();
  }

 private:
  std::string name_;
  std::string file_;
  bool u2_as_bf16_ = false;
};

class TablesDeleteCommand final : public Command {
 public:
  explicit TablesDeleteCommand(CLI::App& parent)
      : Command(parent, "delete", "Remove a table", Runs::kOnServer) {
    app()->add_option("name", name_, "Name of the table")->required();
  }

  absl::Status Run(std::ostream& out) override {
    PHASOR_ASSIGN_OR_RETURN(const Client client, Connect());
    PHASOR_RETURN_IF_ERROR(client.DeleteTable(name_));
    if (common_.json) out << "{}\n";
    return absl::OkStatus();
  }

 private:
  std::string name_;
};

}  // namespace

void AddTableCommands(CLI::App& app, Commands* commands) {
  commands->push_back(std::make_unique<BiasCommand>(app));
  CLI::App* const tables =
      app.add_subcommand("tables", "List, download, upload or delete learned tables of a server");
  tables->require_subcommand(1);
  commands->push_back(std::make_unique<TablesListCommand>(*tables));
  commands->push_back(std::make_unique<TablesGetCommand>(*tables));
  commands->push_back(std::make_unique<TablesUploadCommand>(*tables));
  commands->push_back(std::make_unique<TablesDeleteCommand>(*tables));
}

}  // namespace phasor::cli
