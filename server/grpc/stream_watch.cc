// SPDX-License-Identifier: Apache-2.0
// Reads the calls of all connections from channelz. Channelz answers with JSON in the form of its
// protobuf messages: numbers are strings, and those that are 0 are missing.
#include "server/grpc/stream_watch.h"

#include <arpa/inet.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <grpc/grpc.h>
#include <grpc/support/alloc.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/steady_time.h"

namespace phasor {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

constexpr absl::Duration kInterval = absl::Seconds(1);
constexpr int kRest = 50;  // wait this many times as long as a look took: at most 2 % of a core
constexpr intptr_t kSocketsPerPage = 500;

// Parses a text of channelz and frees it.
Struct Parse(char* json) {
  Struct parsed;
  if (json == nullptr) return parsed;
  if (!google::protobuf::util::JsonStringToMessage(json, &parsed).ok()) parsed.Clear();
  gpr_free(json);
  return parsed;
}

// The value at the end of a path of names; an empty value if there is none.
const Value& At(const Struct& message, std::initializer_list<const char*> path) {
  const Struct* at = &message;
  const Value* value = &Value::default_instance();
  for (const char* const name : path) {
    const auto found = at->fields().find(name);
    if (found == at->fields().end()) return Value::default_instance();
    value = &found->second;
    at = &value->struct_value();
  }
  return *value;
}

int64_t NumberAt(const Struct& message, std::initializer_list<const char*> path) {
  const Value& value = At(message, path);
  int64_t number = 0;
  if (value.has_number_value()) return static_cast<int64_t>(value.number_value());
  static_cast<void>(absl::SimpleAtoi(value.string_value(), &number));
  return number;
}

// The peer, e.g. "127.0.0.1:4711"; empty if it is not TCP.
std::string PeerOf(const Struct& socket) {
  std::string ip;
  const int64_t port = NumberAt(socket, {"socket", "remote", "tcpip_address", "port"});
  const std::string& packed =
      At(socket, {"socket", "remote", "tcpip_address", "ip_address"}).string_value();
  if (!absl::Base64Unescape(packed, &ip) || (ip.size() != 4 && ip.size() != 16)) return "";
  std::array<char, INET6_ADDRSTRLEN> text = {};
  inet_ntop(ip.size() == 4 ? AF_INET : AF_INET6, ip.data(), text.data(), text.size());
  return absl::StrCat(text.data(), ":", port);
}

int64_t OpenStreams(const Struct& socket) {
  return NumberAt(socket, {"socket", "data", "streamsStarted"}) -
         NumberAt(socket, {"socket", "data", "streamsSucceeded"}) -
         NumberAt(socket, {"socket", "data", "streamsFailed"});
}

// Calls `look` with every connection of every server.
void ForEachSocket(absl::FunctionRef<void(const Struct&)> look) {
  Struct servers;
  for (int64_t next = 0; !At(servers, {"end"}).bool_value();) {
    servers = Parse(grpc_channelz_get_servers(static_cast<intptr_t>(next)));
    if (At(servers, {"server"}).list_value().values().empty()) break;
    for (const Value& server : At(servers, {"server"}).list_value().values()) {
      const int64_t id = NumberAt(server.struct_value(), {"ref", "serverId"});
      next = id + 1;
      Struct sockets;
      for (int64_t first = 0; !At(sockets, {"end"}).bool_value();) {
        sockets = Parse(grpc_channelz_get_server_sockets(id, first, kSocketsPerPage));
        if (At(sockets, {"socketRef"}).list_value().values().empty()) break;
        for (const Value& socket : At(sockets, {"socketRef"}).list_value().values()) {
          const int64_t socket_id = NumberAt(socket.struct_value(), {"socketId"});
          first = socket_id + 1;
          look(Parse(grpc_channelz_get_socket(static_cast<intptr_t>(socket_id))));
        }
      }
    }
  }
}

}  // namespace

StreamWatch::StreamWatch(int64_t most, std::function<void(const std::string& peer)> overcrowded)
    : most_(most), overcrowded_(std::move(overcrowded)), thread_([this] { Run(); }) {}

StreamWatch::~StreamWatch() {
  stop_.Stop();
  thread_.join();
}

void StreamWatch::Run() {
  absl::Duration wait = kInterval;
  while (!stop_.WaitFor(wait)) {
    const absl::Time began = SteadyNow();
    ForEachSocket([this](const Struct& socket) {
      if (OpenStreams(socket) <= most_) return;
      const std::string peer = PeerOf(socket);
      if (!peer.empty()) overcrowded_(peer);
    });
    wait = std::max(kInterval, kRest * (SteadyNow() - began));
  }
}

}  // namespace phasor
