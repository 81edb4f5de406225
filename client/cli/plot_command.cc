// SPDX-License-Identifier: Apache-2.0
// `phasor plot`: its flags, and the files that it writes.
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/output.h"
#include "client/cli/plot.h"
#include "client/cli/position_flags.h"
#include "client/cli/spec_flags.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor::cli {
namespace {

constexpr int kErrorPoints = 400;
constexpr int64_t kLastExact = int64_t{1} << 53;

class PlotCommand final : public Command {
 public:
  explicit PlotCommand(CLI::App& parent)
      : Command(parent, "plot",
                "Draw an encoding as a picture: its values, or its error by position") {
    AddSpecFlags(*app(), call_.spec);
    positions_.Add(*app(), "");
    app()->add_flag("--error", error_,
                    "Draw the error of sines and cosines by position, of Phasor and of float32 "
                    "angles, instead of a heat map of values");
    app()
        ->add_option("--max-position", max_position_, "Last position of --error, in [10, 2^53]")
        ->capture_default_str()
        ->check(CLI::Range(int64_t{10}, kLastExact));
    app()->add_option("--output", output_, "PNG file to write")->required();
  }

  absl::Status Run(std::ostream& out) override {
    PHASOR_ASSIGN_OR_RETURN(const Client client, Connect());
    PHASOR_ASSIGN_OR_RETURN(const Canvas picture, error_ ? DrawErrors(client) : DrawValues(client));
    PHASOR_RETURN_IF_ERROR(picture.WritePng(output_));
    const std::string size = StrCat(picture.width(), " x ", picture.height());
    if (common_.json) {
      const nlohmann::ordered_json json = {
          {"output", output_}, {"width", picture.width()}, {"height", picture.height()}};
      out << json.dump(2) << "\n";
    } else {
      out << output_ << ": " << size << " pixels\n";
    }
    return absl::OkStatus();
  }

 private:
  std::string Name() const { return call_.spec.preset.empty() ? "spec" : call_.spec.preset; }

  absl::StatusOr<Canvas> DrawValues(const Client& client) {
    PHASOR_ASSIGN_OR_RETURN(call_.positions, positions_.Get());
    PHASOR_RETURN_IF_ERROR(positions_.CheckAxes(client, call_.spec));
    PHASOR_ASSIGN_OR_RETURN(const EncodeResult result, client.Encode(call_));
    const TensorView rows = {result.output, result.bytes.data(), result.bytes.size()};
    const int64_t columns = rows.desc.shape.back();
    int64_t count = 1;
    for (const int64_t extent : rows.desc.shape) count *= extent;
    std::vector<double> values(count);
    for (int64_t i = 0; i < count; ++i) values[i] = ElementAt(rows, i);
    return HeatMap(values, columns == 0 ? 0 : count / columns, columns,
                   StrCat(Name(), ": blue -, red +; a row per position"));
  }

  absl::StatusOr<Canvas> DrawErrors(const Client& client) {
    if (positions_.given()) {
      return Invalid("--positions: not used by --error; must be left out (see --max-position)");
    }
    PHASOR_ASSIGN_OR_RETURN(const SpecDetails details, client.ResolveSpec(call_.spec));
    return ErrorChart(AngleErrors(details, max_position_, kErrorPoints),
                      StrCat(Name(), ", ", details.pairs.size(), " pairs"));
  }

  EncodeCall call_;
  PositionFlags positions_;
  bool error_ = false;
  int64_t max_position_ = 1048576;
  std::string output_;
};

}  // namespace

std::unique_ptr<Command> MakePlotCommand(CLI::App& parent) {
  return std::make_unique<PlotCommand>(parent);
}

}  // namespace phasor::cli
