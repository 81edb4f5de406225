// SPDX-License-Identifier: Apache-2.0
// New options for a running server: some take effect at once, others need a restart.
#ifndef PHASOR_SERVER_CONFIG_RELOAD_H_
#define PHASOR_SERVER_CONFIG_RELOAD_H_

#include <string>
#include <vector>

#include "server/config/options.h"

namespace phasor {

// What a reload did. An entry is "<option>: <old> -> <new>", or "encoders.<name>: added", "changed"
// or "removed".
struct ReloadReport {
  std::vector<std::string> changed;
  std::vector<std::string> needs_restart;  // new values that are not in use
};

// Copies to `current` the values of `next` that a running server can use. Both must be valid.
ReloadReport TakeOver(const ServerOptions& next, ServerOptions* current);

}  // namespace phasor

#endif  // PHASOR_SERVER_CONFIG_RELOAD_H_
