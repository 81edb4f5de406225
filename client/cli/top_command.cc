// SPDX-License-Identifier: Apache-2.0
// `phasor top`: reads the metrics page again and again, and draws or prints the values.
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/metrics_fetch.h"
#include "client/cli/metrics_page.h"
#include "client/cli/terminal.h"
#include "client/cli/top_values.h"
#include "client/cli/top_view.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"

namespace phasor::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct Scrape {
  MetricsPage page;
  SteadyClock::time_point time;
};

class TopCommand final : public Command {
 public:
  explicit TopCommand(CLI::App& parent)
      : Command(parent, "top",
                "Show live what one server does. Every number comes from its page for "
                "Prometheus (--metrics-listen); rates are the change between two readings",
                Runs::kHere) {
    app()->remove_option(app()->get_option("--threads"));
    app()
        ->add_option("--metrics", metrics_,
                     "Address that the server was given with --metrics-listen: host:port or "
                     "http://host:port/path")
        ->capture_default_str();
    app()
        ->add_option("--interval", interval_s_, "Seconds between frames")
        ->capture_default_str()
        ->check(IsAbove0)
        ->check(CLI::Range(0.1, 3600.0));
    CLI::Option* const count =
        app()
            ->add_option("--count", count_,
                         "Number of frames; default: until q or Ctrl-C on a terminal")
            ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
    app()
        ->add_flag("--once", once_, "Print one frame, which stays on the terminal")
        ->excludes(count);
  }

  absl::Status Run(std::ostream& out) override {
    PHASOR_ASSIGN_OR_RETURN(url_, ParseMetricsUrl(metrics_));
    if (once_) count_ = 1;
    PHASOR_ASSIGN_OR_RETURN(before_, Read());
    return Terminal::IsThere() && !once_ && !common_.json ? Watch() : Print(out);
  }

 private:
  absl::StatusOr<Scrape> Read() const {
    PHASOR_ASSIGN_OR_RETURN(const std::string text,
                            FetchMetrics(url_, absl::Seconds(common_.timeout_s)));
    Scrape scrape = {.time = SteadyClock::now()};
    absl::StatusOr<MetricsPage> page = MetricsPage::Parse(text);
    if (!page.ok()) return InvalidAt(url_.Text(), page.status().message());
    scrape.page = *std::move(page);
    if (!IsServersPage(scrape.page)) {
      return InvalidAt(url_.Text(), "no phasor_build_info; must be a page of phasor-server");
    }
    return scrape;
  }

  // The values since the last page.
  absl::StatusOr<TopValues> ReadValues() {
    PHASOR_ASSIGN_OR_RETURN(Scrape now, Read());
    const std::chrono::duration<double> elapsed = now.time - before_.time;
    const double now_s = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
    TopValues values = CompareMetrics(before_.page, now.page, elapsed.count(), now_s);
    before_ = std::move(now);
    return values;
  }

  bool IsLast(int64_t frame) const { return count_ > 0 && frame == count_; }

  absl::Status Print(std::ostream& out) {
    for (int64_t frame = 1;; ++frame) {
      absl::SleepFor(absl::Seconds(interval_s_));
      PHASOR_ASSIGN_OR_RETURN(const TopValues values, ReadValues());
      if (common_.json) {
        // The text is the server's: the dump escapes what is not UTF-8.
        out << ToJson(values, url_.Text())
                   .dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace)
            << "\n";
      } else {
        out << (frame > 1 ? "\n" : "") << FormatTop(values, url_.HostAndPort(), {});
      }
      if (!out.flush()) return CannotPrint();
      if (IsLast(frame)) return absl::OkStatus();
    }
  }

  absl::Status Watch() {
    PHASOR_ASSIGN_OR_RETURN(const std::unique_ptr<Terminal> terminal, Terminal::Open());
    std::optional<TopValues> values;
    // Why the picture is out of date. The server may come back.
    std::string problem;
    for (int64_t frame = 0;; ++frame) {
      const SteadyClock::time_point until =
          SteadyClock::now() + absl::ToChronoNanoseconds(absl::Seconds(interval_s_));
      Terminal::Event event;
      do {
        terminal->Draw(FrameOf(values, problem, terminal->size()));
        event = terminal->Wait(until);
      } while (event == Terminal::Event::kResized);
      if (event == Terminal::Event::kQuit || IsLast(frame)) return absl::OkStatus();
      absl::StatusOr<TopValues> read = ReadValues();
      problem = read.ok() ? "" : StrCat(read.status().message());
      if (read.ok()) values = *std::move(read);
    }
  }

  std::string FrameOf(const std::optional<TopValues>& values, const std::string& problem,
                      Terminal::Size size) const {
    const std::string first_line = problem.empty() ? "" : problem + "\n";
    if (values.has_value()) {
      const int height = size.height - (problem.empty() ? 0 : 1);
      return first_line + FormatTop(*values, url_.HostAndPort(), {size.width, height});
    }
    return StrCat(first_line, "phasor top ", url_.Text(), ": the first numbers come after ",
                  interval_s_, " s, q ends\n");
  }

  MetricsUrl url_;
  Scrape before_;
  std::string metrics_ = "127.0.0.1:9464";
  double interval_s_ = 1;
  int64_t count_ = 0;  // frames to show; 0: no limit
  bool once_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeTopCommand(CLI::App& parent) {
  return std::make_unique<TopCommand>(parent);
}

}  // namespace phasor::cli
