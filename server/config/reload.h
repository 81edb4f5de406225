// SPDX-License-Identifier: Apache-2.0
// New options for a running server: which take effect, which wait for a restart.
#ifndef PHASOR_SERVER_CONFIG_RELOAD_H_
#define PHASOR_SERVER_CONFIG_RELOAD_H_

#include <string>
#include <vector>

#include "server/config/options.h"

namespace phasor {

// Each entry is "<option>: <old> -> <new>", or "encoders.<name>: added" (changed, removed).
struct ReloadReport {
  std::vector<std::string> changed;
  std::vector<std::string> needs_restart;  // new values that are not used
};

// Gives `current` those values of `next` that a running server can take over; both are valid.
ReloadReport TakeOver(const ServerOptions& next, ServerOptions* current);

}  // namespace phasor

#endif  // PHASOR_SERVER_CONFIG_RELOAD_H_
