// SPDX-License-Identifier: Apache-2.0
#include "client/cli/layout_flags.h"

#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "client/cli/spec_flags.h"
#include "kernels/base/text.h"

namespace phasor::cli {

void AddLayoutFlags(CLI::App& app, KeyLayout& layout, int64_t& offset_bytes) {
  app.add_option("--layout", layout.name,
                 "Name of a layout; default dense [pages, page-size, heads, head-dim]");
  AddEnumFlag<KeyCode>(
      app, "--code", {std::begin(kKeyCodes), std::end(kKeyCodes)},
      +[](KeyCode code) { return Name(code); }, [&layout](KeyCode code) { layout.code = code; },
      "How keys are stored; default what an .npy holds, otherwise bfloat16");
  app.add_option("--pages", layout.pages, "Pages of a layer");
  app.add_option("--page-size", layout.page_size, "Slots of a page; default 1");
  app.add_option("--heads", layout.heads, "Heads of a slot");
  app.add_option("--layers", layout.layers, "Layers in each --input; default 1");
  app.add_option("--offset-bytes", offset_bytes,
                 "Bytes before the tensor in each --input, after the header of an .npy");
  const std::pair<const char*, std::optional<int64_t>*> distances[] = {
      {"page", &layout.page_bytes}, {"slot", &layout.slot_bytes},   {"head", &layout.head_bytes},
      {"lane", &layout.lane_bytes}, {"group", &layout.group_bytes}, {"row", &layout.row_bytes}};
  for (const auto& [name, field] : distances) {
    const std::string of = field == &layout.row_bytes
                               ? "Bytes of a whole row"
                               : StrCat("Bytes from one ", name, " to the next");
    app.add_option(StrCat("--", name, "-bytes"), *field, of + "; default by --layout");
  }
  app.add_option("--group-lanes", layout.group_lanes, "Lanes of a group; default all");
  app.add_option("--lanes-offset", layout.lanes_offset,
                 "Bytes of a row before its first lane; default by --layout");
  app.add_option("--scale", layout.scale, "For float8: value = code * scale; default 1");
  app.add_option("--hadamard", layout.hadamard,
                 "Lanes of the Hadamard blocks that keys are multiplied by; default none");
}

bool HasDistances(const KeyLayout& layout) {
  return layout.page_bytes.has_value() || layout.slot_bytes.has_value() ||
         layout.head_bytes.has_value() || layout.lane_bytes.has_value() ||
         layout.group_lanes.has_value() || layout.group_bytes.has_value() ||
         layout.row_bytes.has_value() || layout.lanes_offset.has_value();
}

}  // namespace phasor::cli
