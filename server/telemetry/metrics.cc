// SPDX-License-Identifier: Apache-2.0
// See metrics.h. The page is what the registry has counted, then the snapshot, then the process.
#include "server/telemetry/metrics.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/registry.h>

#include <exception>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/telemetry/call_metrics.h"
#include "server/telemetry/engine_metrics.h"
#include "server/telemetry/process_families.h"
#include "server/telemetry/snapshot_families.h"

namespace phasor::telemetry {

class Metrics::Impl {
 public:
  prometheus::Registry registry;
  EngineMetrics engine{&registry};
  CallMetrics calls{&registry};
};

Metrics::Metrics() : impl_(std::make_shared<Impl>()) {}
Metrics::~Metrics() = default;
engine::Observer* Metrics::engine_observer() { return &impl_->engine; }
rpc::CallObserver* Metrics::call_observer() { return &impl_->calls; }

namespace {

// What is asked of the server at each scrape.
class SnapshotCollector final : public prometheus::Collectable {
 public:
  explicit SnapshotCollector(std::function<Snapshot()> snapshot) : snapshot_(std::move(snapshot)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families = FamiliesOf(snapshot_());
    std::vector<prometheus::MetricFamily> process = ProcessFamilies();
    std::move(process.begin(), process.end(), std::back_inserter(families));
    return families;
  }

 private:
  const std::function<Snapshot()> snapshot_;
};

}  // namespace

class Exporter::Impl {
 public:
  // The library tells failures by exceptions; they end here.
  static absl::StatusOr<std::unique_ptr<Impl>> Listen(const std::vector<std::string>& addresses) {
    try {
      return std::make_unique<Impl>(addresses);
    } catch (const std::exception&) {
      return absl::UnavailableError(
          absl::StrCat("metrics-listen: cannot listen on ", absl::StrJoin(addresses, ",")));
    }
  }

  explicit Impl(const std::vector<std::string>& addresses)
      : exposer_(std::vector<std::string>{"listening_ports", absl::StrJoin(addresses, ","),
                                          "num_threads", kThreads, "request_timeout_ms",
                                          kRequestTimeoutMs}) {
    const std::vector<int> ports = exposer_.GetListeningPorts();
    for (size_t i = 0; i < addresses.size() && i < ports.size(); ++i) {
      const std::string& address = addresses[i];
      addresses_.push_back(absl::StrCat(address.substr(0, address.rfind(':') + 1), ports[i]));
    }
  }

  void Register(std::shared_ptr<prometheus::Collectable> counted,
                std::shared_ptr<prometheus::Collectable> asked) {
    collectables_ = {std::move(counted), std::move(asked)};
    for (const auto& collectable : collectables_) exposer_.RegisterCollectable(collectable);
  }

  const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  // A scraper, a person, and two connections that say nothing, for so long.
  static constexpr char kThreads[] = "4";
  static constexpr char kRequestTimeoutMs[] = "500";

  std::vector<std::shared_ptr<prometheus::Collectable>> collectables_;  // outlive the exposer
  prometheus::Exposer exposer_;
  std::vector<std::string> addresses_;
};

absl::StatusOr<std::unique_ptr<Exporter>> Exporter::Start(const std::vector<std::string>& addresses,
                                                          const Metrics& metrics,
                                                          std::function<Snapshot()> snapshot) {
  absl::StatusOr<std::unique_ptr<Impl>> impl = Impl::Listen(addresses);
  if (!impl.ok()) return impl.status();
  (*impl)->Register(
      std::shared_ptr<prometheus::Collectable>(metrics.impl_, &metrics.impl_->registry),
      std::make_shared<SnapshotCollector>(std::move(snapshot)));
  return std::unique_ptr<Exporter>(new Exporter(*std::move(impl)));
}

Exporter::Exporter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Exporter::~Exporter() = default;
const std::vector<std::string>& Exporter::addresses() const { return impl_->addresses(); }

}  // namespace phasor::telemetry
