// SPDX-License-Identifier: Apache-2.0
// PageServer: serves one page over HTTP to a few readers. A slow or silent reader delays no other.
#ifndef PHASOR_SERVER_TELEMETRY_PAGE_SERVER_H_
#define PHASOR_SERVER_TELEMETRY_PAGE_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace phasor::telemetry {

// What a reader gets.
struct Page {
  std::string content_type;
  std::string body;
};

struct PageServerOptions {
  std::vector<std::string> addresses;  // in the form of ParseListenAddress
  std::string path;                    // e.g. "/metrics"; others are not found
  // Returns the page for a request with this header Accept, empty if it has none. Called for every
  // request, on the server's thread.
  std::function<Page(std::string_view accept)> page;
  int max_connections = 64;                        // a further one closes the oldest
  absl::Duration request_time = absl::Seconds(5);  // to send the request
  absl::Duration answer_time = absl::Seconds(30);  // to receive the answer
};

// A running server. Owns its sockets and its thread; the destructor stops at once, also connections
// in progress.
class PageServer {
 public:
  // UNAVAILABLE "listen: ...": an address cannot be bound.
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(PageServerOptions options);
  virtual ~PageServer() = default;

  // The addresses with their real ports.
  virtual std::vector<std::string> addresses() const = 0;
};

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_PAGE_SERVER_H_
