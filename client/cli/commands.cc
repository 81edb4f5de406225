// SPDX-License-Identifier: Apache-2.0
// The subcommands encode, rope, resolve, presets and health, and the flags that all share.
#include "client/cli/commands.h"

#include <unistd.h>

#include <deque>
#include <filesystem>
#include <iostream>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "client/cli/npy.h"
#include "client/cli/output.h"
#include "client/cli/position_flags.h"
#include "client/cli/spec_flags.h"
#include "kernels/base/invalid.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/names.h"

namespace phasor::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string_view DirectionName(Direction direction) {
  switch (direction) {
    case Direction::kForward:
      return "FORWARD";
    case Direction::kInverse:
      return "INVERSE";
    case Direction::kDelta:
      return "DELTA";
  }
  return "?";
}

std::string_view LayoutName(RopeLayout layout) {
  switch (layout) {
    case RopeLayout::kTokensHeads:
      return "TOKENS_HEADS";
    case RopeLayout::kHeadsTokens:
      return "HEADS_TOKENS";
  }
  return "?";
}

std::vector<EncodeOutput> AllOutputs() {
  std::vector<EncodeOutput> outputs;
  for (int i = 0; i < EnumeratorCount<EncodeOutput>(); ++i) {
    outputs.push_back(static_cast<EncodeOutput>(i));
  }
  return outputs;
}

class EncodeCommand final : public Command {
 public:
  explicit EncodeCommand(CLI::App& parent)
      : Command(parent, "encode", "Compute the embedding rows of positions") {
    AddSpecFlags(*app(), call_.spec);
    positions_.Add(*app(), "");
    AddEnumFlag<Dtype>(
        *app(), "--dtype", {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16},
        +[](Dtype dtype) { return Name(dtype); }, [this](Dtype d) { call_.output_dtype = d; },
        "Type of the rows; default float32");
    AddEnumFlag<EncodeOutput>(
        *app(), "--form", AllOutputs(), &Name, [this](EncodeOutput form) { call_.form = form; },
        "Default embedding; the other forms are cos/sin tables of a rotary spec");
    app()->add_option("--add-to", add_to_, ".npy [tokens, dim] to which the rows are added");
    app()->add_option("--table", call_.table,
                      "Return rows of this learned table of the server; takes no spec");
    app()->add_flag_callback(
        "--clip", [this] { call_.out_of_range = OutOfRange::kClip; },
        "Give positions beyond the table its nearest row; otherwise they are an error");
    app()->add_option("--embedding-scale", call_.embedding_scale,
                      "Number that --add-to is multiplied by");
    app()->add_option("--output", output_, "Write the rows to this .npy instead of printing them");
    result_.Add(*app());
  }

  absl::Status Run(std::ostream& out) override {
    PHASOR_ASSIGN_OR_RETURN(const Client client, Connect());
    PHASOR_ASSIGN_OR_RETURN(call_.positions, positions_.Get());
    PHASOR_RETURN_IF_ERROR(call_.table.empty() ? positions_.CheckAxes(client, call_.spec)
                                               : positions_.CheckAxes(1));
    NpyArray add_to;
    if (!add_to_.empty()) {
      PHASOR_ASSIGN_OR_RETURN(add_to, ReadNpy(add_to_, result_.u2_as_bf16));
      call_.add_to = add_to.view();
    }
    PHASOR_ASSIGN_OR_RETURN(const EncodeResult result, client.Encode(call_));
    return Show(result, "rows", output_, result_.columns, out);
  }

 private:
  EncodeCall call_;
  PositionFlags positions_;
  ResultFlags result_;
  std::string add_to_;
  std::string output_;
};

class RopeCommand final : public Command {
 public:
  explicit RopeCommand(CLI::App& parent)
      : Command(parent, "rope", "Apply rotary embeddings to tensors") {
    AddSpecFlags(*app(), call_.spec);
    positions_.Add(*app(), "");
    from_positions_.Add(*app(), "from-");
    AddEnumFlag<Direction>(
        *app(), "--direction", {Direction::kForward, Direction::kInverse, Direction::kDelta},
        &DirectionName, [this](Direction d) { call_.direction = d; },
        "Default forward; delta moves keys from --from-positions to --positions");
    AddEnumFlag<RopeLayout>(
        *app(), "--layout", {RopeLayout::kTokensHeads, RopeLayout::kHeadsTokens}, &LayoutName,
        [this](RopeLayout layout) { call_.layout = layout; },
        "Order of axes; default tokens-heads: [(batch,) tokens, heads, head_dim]");
    app()
        ->add_option("--input", inputs_,
                     ".npy to rotate; repeat the flag for several tensors with the same positions")
        ->required()
        ->allow_extra_args(false);
    app()
        ->add_option("--output", outputs_,
                     ".npy to write, one for each --input; otherwise the results are printed")
        ->allow_extra_args(false);
    AddEnumFlag<Dtype>(
        *app(), "--output-dtype", {Dtype::kFloat8E4M3, Dtype::kFloat8E5M2},
        +[](Dtype dtype) { return Name(dtype); }, [this](Dtype dtype) { output_dtype_ = dtype; },
        "Type of the outputs, for float16 and bfloat16 inputs; default the input's type. "
        "The .npy holds the bits as u1");
    app()->add_option("--inv-scale", inv_scale_,
                      "Number that results are multiplied by before rounding to --output-dtype; "
                      "default 1");
    app()->add_flag(
        "--stream", stream_,
        "Send in chunks, so that tensors may be larger than one message; shows progress "
        "on standard error");
    result_.Add(*app());
  }

  absl::Status Run(std::ostream& out) override {
    if (!outputs_.empty() && outputs_.size() != inputs_.size()) {
      return Invalid("--output: given ", outputs_.size(), " times; must be as often as --input (",
                     inputs_.size(), ")");
    }
    std::set<std::filesystem::path> files;
    std::error_code unknown;
    for (const std::string& path : outputs_) {
      files.insert(std::filesystem::weakly_canonical(std::filesystem::absolute(path), unknown));
    }
    if (files.size() != outputs_.size()) {
      return Invalid("--output: one file given twice; must be a file for each --input");
    }
    PHASOR_ASSIGN_OR_RETURN(const Client client, Connect());
    PHASOR_ASSIGN_OR_RETURN(call_.positions, positions_.Get());
    if (from_positions_.given()) {
      PHASOR_ASSIGN_OR_RETURN(call_.from_positions, from_positions_.Get());
    }
    PHASOR_RETURN_IF_ERROR(positions_.CheckAxes(client, call_.spec));
    PHASOR_RETURN_IF_ERROR(from_positions_.CheckAxes(client, call_.spec));
    std::deque<NpyArray> inputs;
    std::deque<NpyArray> arrays;  // of the outputs, which are the inputs unless the type changes
    for (const std::string& path : inputs_) {
      PHASOR_ASSIGN_OR_RETURN(NpyArray array, ReadNpy(path, result_.u2_as_bf16));
      if (output_dtype_.has_value()) {
        NpyArray& input = inputs.emplace_back(std::move(array));
        array = {.dtype = *output_dtype_, .shape = input.shape};
        PHASOR_ASSIGN_OR_RETURN(array.bytes,
                                Bytes::Allocate(input.bytes.size() / SizeOf(input.dtype)));
        call_.tensors.emplace_back(input.view(), arrays.emplace_back(std::move(array)).view());
      } else {
        call_.tensors.emplace_back(arrays.emplace_back(std::move(array)).view());
      }
      call_.tensors.back().inv_scale = inv_scale_;
    }
    PHASOR_ASSIGN_OR_RETURN(const RunInfo info,
                            stream_ ? client.ApplyRoPEInChunks(call_, {.progress = ShowProgress})
                                    : client.ApplyRoPE(call_));
    Json json = {{"info", ToJson(info)}};
    for (size_t i = 0; i < arrays.size(); ++i) {
      const TensorView tensor = arrays[i].view();
      if (!outputs_.empty()) {
        PHASOR_RETURN_IF_ERROR(WriteNpy(outputs_[i], tensor));
        json["outputs"].push_back(outputs_[i]);
      } else if (common_.json) {
        json["tensors"].push_back(ToJson(tensor));
      } else {
        out << inputs_[i] << ": " << FormatTensor(tensor, result_.columns);
      }
    }
    out << (common_.json ? json.dump(2) + "\n" : FormatInfo(info));
    return absl::OkStatus();
  }

 private:
  static void ShowProgress(int64_t done, int64_t all) {
    if (isatty(STDERR_FILENO) == 0) return;
    std::cerr << "\r" << 100 * done / all << " %" << (done == all ? "\n" : "") << std::flush;
  }

  RopeCall call_;
  std::optional<Dtype> output_dtype_;
  std::optional<float> inv_scale_;
  bool stream_ = false;
  PositionFlags positions_;
  PositionFlags from_positions_;
  ResultFlags result_;
  std::vector<std::string> inputs_;
  std::vector<std::string> outputs_;
};

class ResolveCommand final : public Command {
 public:
  explicit ResolveCommand(CLI::App& parent)
      : Command(parent, "resolve", "Show every number that a spec stands for") {
    AddSpecFlags(*app(), spec_);
    app()->add_option(
        "--context-length", comparison_.context_length,
        "Search below this position for PARITY's largest difference from EXACT; default "
        "the preset's context length");
    AddEnumFlag<Dtype>(
        *app(), "--dtype", {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16},
        +[](Dtype dtype) { return Name(dtype); },
        [this](Dtype dtype) { comparison_.model = dtype; },
        "Type of the model in that comparison; default bfloat16");
    app()->add_flag("--model", model_,
                    "Show the specs of all layers of the model that --config describes");
  }

  absl::Status Run(std::ostream& out) override {
    PHASOR_ASSIGN_OR_RETURN(const Client client, Connect());
    if (model_) {
      PHASOR_ASSIGN_OR_RETURN(const ModelDetails model, client.ResolveModel(spec_));
      out << (common_.json ? ToJson(model).dump(2) + "\n" : FormatModel(model));
      return absl::OkStatus();
    }
    PHASOR_ASSIGN_OR_RETURN(const SpecDetails details, client.ResolveSpec(spec_, comparison_));
    out << (common_.json ? ToJson(details).dump(2) + "\n" : FormatDetails(details));
    return absl::OkStatus();
  }

 private:
  Spec spec_;
  parity::Comparison comparison_;
  bool model_ = false;
};

class PresetsCommand final : public Command {
 public:
  explicit PresetsCommand(CLI::App& parent)
      : Command(parent, "presets", "List the presets: specs with a name") {}

  absl::Status Run(std::ostream& out) override {
    PHASOR_ASSIGN_OR_RETURN(const Client client, Connect());
    PHASOR_ASSIGN_OR_RETURN(const std::vector<Preset> presets, client.ListPresets());
    if (!common_.json) {
      out << FormatPresets(presets);
      return absl::OkStatus();
    }
    Json json = Json::array();
    for (const Preset& preset : presets) json.push_back(ToJson(preset));
    out << json.dump(2) << "\n";
    return absl::OkStatus();
  }
};

class HealthCommand final : public Command {
 public:
  explicit HealthCommand(CLI::App& parent)
      : Command(parent, "health", "Ask whether a server serves; fails if it does not",
                Runs::kOnServer) {
    app()->add_option("--service", service_, "gRPC service to ask about; default the whole server");
  }

  absl::Status Run(std::ostream& out) override {
    PHASOR_ASSIGN_OR_RETURN(const Client client, Connect());
    PHASOR_ASSIGN_OR_RETURN(const Health health, client.CheckHealth(service_));
    if (health != Health::kServing) {
      return absl::UnavailableError(health == Health::kNotServing ? "NOT_SERVING" : "UNKNOWN");
    }
    out << (common_.json ? "{\"status\": \"SERVING\"}\n" : "SERVING\n");
    return absl::OkStatus();
  }

 private:
  std::string service_;
};

class InfoCommand final : public Command {
 public:
  explicit InfoCommand(CLI::App& parent)
      : Command(parent, "info", "Show what computes: version, backend and devices") {}

  absl::Status Run(std::ostream& out) override {
    PHASOR_ASSIGN_OR_RETURN(const Client client, Connect());
    PHASOR_ASSIGN_OR_RETURN(const ServerInfo info, client.GetServerInfo());
    out << (common_.json ? ToJson(info).dump(2) + "\n" : FormatServerInfo(info));
    return absl::OkStatus();
  }
};

std::vector<std::string> FlagsOf(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) names.push_back(option->get_name());
  return names;
}

std::vector<std::string> SubcommandsOf(const CLI::App& command) {
  const auto is_any = [](const CLI::App*) { return true; };
  std::vector<std::string> names;
  for (const CLI::App* sub : command.get_subcommands(is_any)) names.push_back(sub->get_name());
  return names;
}

void AddSecurityFlags(CLI::App& app, CommonFlags& common) {
  app.add_flag("--tls", common.tls, "Use TLS to --server; other TLS options turn it on too");
  app.add_option("--ca", common.files.ca_file,
                 "PEM of the authority that signed the server's certificate; default the system's "
                 "roots. Turns on TLS");
  app.add_option("--cert", common.files.cert_file,
                 "PEM of this client's certificate. Turns on TLS");
  app.add_option("--key", common.files.key_file, "PEM of the private key of --cert");
  app.add_option("--server-name", common.files.server_name,
                 "Name to expect in the server's certificate; default the host of --server. Turns "
                 "on TLS");
  app.add_option("--token-file", common.token_file, "File with the bearer token to send");
  app.add_flag("--token-over-plaintext", common.token_over_plaintext,
               "Allow sending the token to another host without TLS");
}

// An address that is empty, as of a shell's variable that is not set, must not compute in this
// process unnoticed; nor may a call that should be secure.
absl::Status RefuseWithoutServer(const CLI::App& command) {
  if (command.get_option("--server")->count() > 0) {
    return Invalid(
        "--server: empty; must be an address, or be left out to compute in this process");
  }
  for (const char* const name : {"--tls", "--ca", "--cert", "--key", "--server-name",
                                 "--token-file", "--token-over-plaintext"}) {
    if (command.get_option(name)->count() == 0) continue;
    return InvalidAt(name, "given without --server; must be left out, or --server be given");
  }
  return absl::OkStatus();
}

}  // namespace

std::string IsAbove0(const std::string& text) {
  double number = 0;
  return absl::SimpleAtod(text, &number) && number > 0
             ? ""
             : StrCat("'", text, "'; must be a number above 0");
}

Command::Command(CLI::App& parent, const std::string& name, const std::string& help, Runs runs)
    : app_(parent.add_subcommand(name, help)), runs_(runs) {
  const std::string address = "Address of a server: host:50051 or unix:/path";
  if (runs != Runs::kHere) {
    app_->add_option(
        "--server", common_.server,
        runs == Runs::kAnywhere ? address + "; default: compute in this process" : address);
  }
  app_->add_option("--timeout", common_.timeout_s, "Seconds after which a call fails")
      ->capture_default_str()
      ->check(IsAbove0);
  if (runs != Runs::kOnServer) {
    app_->add_option("--threads", common_.threads,
                     runs == Runs::kAnywhere ? "Threads that compute, when no --server is given"
                                             : "Threads that compute")
        ->capture_default_str()
        ->check(IsAbove0);
  }
  app_->add_flag("--json", common_.json, "Print JSON instead of a table");
  if (runs != Runs::kHere) AddSecurityFlags(*app_, common_);
}

ClientOptions CommonFlags::Options() const {
  ClientOptions options = {.timeout = absl::Seconds(timeout_s), .inproc_threads = threads};
  if (tls || !files.ca_file.empty() || !files.cert_file.empty() || !files.server_name.empty()) {
    options.tls = files;
  }
  options.token_file = token_file;
  options.token_over_plaintext = token_over_plaintext;
  return options;
}

absl::StatusOr<Client> Command::Connect(const ClientOptions& options) const {
  if (!common_.server.empty()) return Client::Connect(common_.server, options);
  if (runs_ == Runs::kOnServer) return Invalid("--server: not set; must be the address to ask");
  PHASOR_RETURN_IF_ERROR(RefuseWithoutServer(*app_));
  return Client::Connect("inproc:", options);
}

absl::Status Command::Show(const EncodeResult& result, const char* name, const std::string& path,
                           int64_t columns, std::ostream& out) const {
  const TensorView tensor = {result.output, result.bytes.data(), result.bytes.size()};
  Json json = {{"info", ToJson(result.info)}};
  if (!path.empty()) {
    PHASOR_RETURN_IF_ERROR(WriteNpy(path, tensor));
    json["output"] = path;
  } else if (common_.json) {
    json[name] = ToJson(tensor);
  } else {
    out << FormatTensor(tensor, columns);
  }
  out << (common_.json ? json.dump(2) + "\n" : FormatInfo(result.info));
  return absl::OkStatus();
}

void ResultFlags::Add(CLI::App& app) {
  app.add_option("--columns", columns, "Numbers to print per row; 0 prints all")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app.add_flag("--u2-as-bf16", u2_as_bf16, kU2Help);
}

absl::Status CannotPrint() {
  return absl::UnavailableError(
      "standard output: cannot be written; is it closed, or its disk full?");
}

Commands MakeCommands(CLI::App& app) {
  Commands commands;
  commands.push_back(std::make_unique<EncodeCommand>(app));
  commands.push_back(std::make_unique<RopeCommand>(app));
  commands.push_back(MakeMoveCommand(app));
  commands.push_back(MakeCheckCommand(app));
  AddTableCommands(app, &commands);
  commands.push_back(std::make_unique<ResolveCommand>(app));
  commands.push_back(std::make_unique<PresetsCommand>(app));
  commands.push_back(MakePlotCommand(app));
  commands.push_back(std::make_unique<HealthCommand>(app));
  commands.push_back(std::make_unique<InfoCommand>(app));
  AddBenchCommands(app, &commands);
  commands.push_back(MakeTopCommand(app));
  return commands;
}

std::string UnknownArgument(const CLI::App& app) {
  const CLI::App* called = &app;
  std::string command = app.get_name();
  const std::vector<std::string> early = app.remaining();  // before the subcommand
  while (!called->get_subcommands().empty()) {
    called = called->get_subcommands().front();
    command += " " + called->get_name();
  }
  for (const std::string& given : early) {
    const std::string name = given.substr(0, given.find('='));
    if (called != &app && called->get_option_no_throw(name) != nullptr) {
      return StrCat(name, ": must come after `", command, "`");
    }
  }
  for (const std::string& given : called->remaining()) {
    const std::string name = given.substr(0, given.find('='));
    const bool is_flag = given.starts_with("-");
    const std::vector<std::string> known = is_flag ? FlagsOf(*called) : SubcommandsOf(*called);
    if (known.empty()) continue;
    return StrCat(name, ": no such ", is_flag ? "flag" : "command", " of `", command, "`",
                  DidYouMean(name, known), " see `", command, " --help`");
  }
  return "";
}

}  // namespace phasor::cli
