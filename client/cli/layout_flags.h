// SPDX-License-Identifier: Apache-2.0
// Flags for the layout of a key cache. Each has the name of its field.
#ifndef PHASOR_CLIENT_CLI_LAYOUT_FLAGS_H_
#define PHASOR_CLIENT_CLI_LAYOUT_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>

#include "kernels/request/move_keys.h"

namespace phasor::cli {

// Adds one flag for every field but head_dim, which is the spec's, and scales. They fill `layout`
// and `offset_bytes`, which must outlive the parsing.
void AddLayoutFlags(CLI::App& app, KeyLayout& layout, int64_t& offset_bytes);

// Whether any flag says how far things are from one another, in place of the name.
bool HasDistances(const KeyLayout& layout);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_LAYOUT_FLAGS_H_
