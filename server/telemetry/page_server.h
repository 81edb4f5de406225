// SPDX-License-Identifier: Apache-2.0
// Serves one page over HTTP, to few readers. Whoever is slow or says nothing delays nobody.
#ifndef PHASOR_SERVER_TELEMETRY_PAGE_SERVER_H_
#define PHASOR_SERVER_TELEMETRY_PAGE_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace phasor::telemetry {

struct PageServerOptions {
  std::vector<std::string> addresses;  // as ParseListenAddress reads them
  std::string path;                    // "/metrics"; others are not found
  std::string content_type;
  // The page. Called for every request for it, on the server's thread.
  std::function<std::string()> page;
  int max_connections = 64;  // one more closes the one that is open for longest
  absl::Duration request_time = absl::Seconds(5);  // for a connection to send its request
  absl::Duration answer_time = absl::Seconds(30);  // and to take the answer
};

// Threads: one of its own. Owns its sockets; the destructor ends at once whatever is under way.
class PageServer {
 public:
  // UNAVAILABLE "listen: ...": an address cannot be bound.
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(PageServerOptions options);
  virtual ~PageServer() = default;

  // With their real ports.
  virtual std::vector<std::string> addresses() const = 0;
};

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_PAGE_SERVER_H_
