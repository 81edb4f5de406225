// SPDX-License-Identifier: Apache-2.0
// Runs parsers. What they accept must hold what their headers promise; what they refuse, they
// refuse as the caller's mistake and by name.
#include "tests/fuzz/check_parsers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/base/sha256.h"
#include "kernels/plan/plan.h"
#include "kernels/spec/model_layers.h"
#include "kernels/spec/spec.h"
#include "kernels/spec/spec_json.h"
#include "kernels/tensor/npy.h"
#include "kernels/tensor/safetensors.h"
#include "proto/protobuf_log.h"
#include "server/base/trace_context.h"
#include "server/config/config_file.h"
#include "server/net/frame_filter.h"
#include "server/security/policy.h"
#include "server/security/rules.h"
#include "server/security/subject_name.h"
#include "server/security/token_table.h"
#include "tests/fuzz/check_sockets.h"
#include "tests/proto/codec_comparison.h"

namespace phasor::fuzz {
namespace {

// The largest plan that is compiled here, so that runs stay fast.
constexpr int64_t kMaxCompiledWidth = 512;

ParserOutcome Refused(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
      break;
    default:
      return {absl::StrCat("code not allowed: ", status.ToString())};
  }
  const bool has_path = status.message().find(": ") != absl::string_view::npos;
  return {has_path ? "" : absl::StrCat("message without a path: ", status.ToString())};
}

// A spec that resolves can be compiled, or is refused by name.
ParserOutcome CheckSpec(const Spec& spec) {
  // All layers of a model: bounded, or refused by name.
  if (const auto model = ResolveModel(spec); !model.ok()) {
    if (ParserOutcome outcome = Refused(model.status()); !outcome.violation.empty()) return outcome;
  } else if (model->specs.size() > 64 || model->parts.size() > 32) {
    return {"more specs or parts of a model than there may be"};
  }
  const auto resolved = ResolveSpec(spec);
  if (!resolved.ok()) return Refused(resolved.status());
  if (resolved->dim > kMaxCompiledWidth || resolved->head_dim > kMaxCompiledWidth)
    return {"", true};
  const auto plan = CompilePlan(*resolved);
  if (!plan.ok()) return Refused(plan.status());
  return {BytesOf(**plan) > (4 << 20) ? "a plan of a narrow spec is large" : "", true};
}

ParserOutcome CheckSpecJson(std::string_view text) {
  const auto spec = SpecFromJson(text);
  return spec.ok() ? CheckSpec(*spec) : Refused(spec.status());
}

// The file has a few bytes after what is here, as the header may say.
ParserOutcome CheckNpy(std::string_view text) {
  const auto file_bytes = static_cast<int64_t>(text.size()) + 64;
  const auto header = ParseNpyHeader(text, file_bytes, !text.empty() && text[0] == 'b', "file");
  if (!header.ok()) return Refused(header.status());
  const bool within = header->data_begin >= 0 && header->data_bytes >= 0 &&
                      header->data_begin <= file_bytes - header->data_bytes;
  return {within ? "" : "elements beyond the file", true};
}

ParserOutcome CheckSafetensors(std::string_view text) {
  const auto file_bytes = static_cast<int64_t>(text.size()) + 64;
  const auto tensors = ParseSafetensorsHeader(text, file_bytes, "file");
  if (!tensors.ok()) return Refused(tensors.status());
  for (const NamedTensor& tensor : *tensors) {
    if (tensor.data_begin < 0 || tensor.data_bytes < 0 ||
        tensor.data_begin > file_bytes - tensor.data_bytes) {
      return {"elements beyond the file", true};
    }
  }
  return {"", true};
}

ParserOutcome CheckTokens(std::string_view text) {
  const auto table = security::TokenTable::Parse(text, "tokens");
  if (!table.ok()) return Refused(table.status());
  const bool known = table->NameOf(std::string(40, 't')).has_value();
  return {known ? "a token that is in no file is known" : "", true};
}

ParserOutcome CheckPolicy(std::string_view text) {
  const std::vector<std::string> methods = {"a.B/One", "a.B/Two"};
  const auto policy = security::Policy::Parse(text, "policy", methods);
  if (!policy.ok()) return Refused(policy.status());
  for (const auto& [name, grant] : policy->grants()) {
    if (grant.max_inflight_bytes < 0 || grant.max_regions < 0) return {"a limit below 0", true};
  }
  return {"", true};
}

ParserOutcome CheckConfiguration(std::string_view text) {
  const int fd = memfd_create("configuration", MFD_CLOEXEC);
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const auto file = ReadConfigFile(absl::StrCat("/proc/self/fd/", fd));
  close(fd);
  if (!written) return {"no memory for a file"};
  return file.ok() ? ParserOutcome{"", true} : Refused(file.status());
}

// However the bytes are cut, the filter says the same.
ParserOutcome CheckFrames(absl::Span<const uint8_t> bytes) {
  const absl::Time now = absl::UnixEpoch();
  FrameFilter whole(1000, std::make_shared<ResetBudget>(now));
  FrameFilter cut(1000, std::make_shared<ResetBudget>(now));
  const bool fine = whole.Read(bytes, now) == nullptr;
  bool fine_in_pieces = true;
  for (size_t i = 0; i < bytes.size() && fine_in_pieces; ++i) {
    fine_in_pieces = cut.Read(bytes.subspan(i, 1), now) == nullptr;
  }
  return {fine == fine_in_pieces ? "" : "the cut decides", fine};
}

// The values of a call's `authorization`, a line each. One token is known.
ParserOutcome CheckAuthorization(std::string_view text) {
  static const std::string* const token = new std::string(40, 't');
  static const auto* const rules = [] {
    const int fd = memfd_create("tokens", 0);  // stays open: the rules name it
    const std::string line = absl::StrCat("ci sha256:", Sha256Hex(*token), "\n");
    static_cast<void>(!write(fd, line.data(), line.size()));
    return new auto(security::Rules::Load({absl::StrCat("/proc/self/fd/", fd)}, {}, nullptr));
  }();
  if (!rules->ok()) return {rules->status().ToString()};
  security::Presented caller;
  caller.authorization = absl::StrSplit(absl::string_view(text.data(), text.size()), '\n');
  const security::Decision decision = (**rules)->Decide(caller, "a.B/One");
  if (decision.status.ok()) {
    const bool presented = absl::EndsWith(caller.authorization[0], *token);
    return {presented && decision.identity == "token:ci" ? "" : "a token that nobody sent", true};
  }
  return {absl::IsUnauthenticated(decision.status) ? "" : decision.status.ToString()};
}

ParserOutcome CheckTraceparent(std::string_view text) {
  const auto context = ParseTraceparent(text);
  if (!context.has_value()) return {};
  const bool whole = context->trace_id.size() == 16 && context->span_id.size() == 8;
  return {whole ? "" : "ids of other lengths", true};
}

// A name has the same type whatever follows a NUL in it, or none.
ParserOutcome CheckSubjectName(const std::string& text) {
  const security::NameType type = security::TypeOfName(text);
  if (type == security::NameType::kIp && text.find('\0') != text.npos) return {"an IP with a NUL"};
  return {"", true};
}

// The first byte names the message's type, the second where it is cut. The codec and protobuf
// agree.
ParserOutcome CheckRawMessage(absl::Span<const uint8_t> bytes) {
  static const auto* const types =
      new std::vector<phasor::testing::RawType>(phasor::testing::AllRawTypes());
  if (bytes.size() < 2) return {};
  phasor::testing::MessageFuzzer cuts(bytes[1]);
  const auto message = bytes.subspan(2);
  const auto result = phasor::testing::CompareCodecs(
      (*types)[bytes[0] % types->size()], std::string(message.begin(), message.end()), cuts);
  return {result.difference, result.taken};
}

}  // namespace

ParserOutcome CheckParser(absl::Span<const uint8_t> input) {
  SilenceProtobufLog();
  if (input.empty()) return {};
  const auto bytes = input.subspan(1);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  switch (static_cast<Parser>(input[0] % kParserCount)) {
    case Parser::kConfigJson:
      return CheckSpec({.config_json = std::string(text)});
    case Parser::kSpecJson:
      return CheckSpecJson(text);
    case Parser::kNpy:
      return CheckNpy(text);
    case Parser::kSafetensors:
      return CheckSafetensors(text);
    case Parser::kTokens:
      return CheckTokens(text);
    case Parser::kPolicy:
      return CheckPolicy(text);
    case Parser::kConfiguration:
      return CheckConfiguration(text);
    case Parser::kFrames:
      return CheckFrames(bytes);
    case Parser::kLeaseLines:
      return CheckLeaseLines(text);
    case Parser::kPages:
      return CheckPages(text);
    case Parser::kAuthorization:
      return CheckAuthorization(text);
    case Parser::kTraceparent:
      return CheckTraceparent(text);
    case Parser::kSubjectName:
      return CheckSubjectName(std::string(text));
    case Parser::kRawMessage:
      return CheckRawMessage(bytes);
  }
  return {};
}

}  // namespace phasor::fuzz
