// SPDX-License-Identifier: Apache-2.0
// Numbers connections, and tells others when one has closed.
#include "server/net/connections.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace phasor {
namespace {

std::string Name(const std::string& address, uint64_t number) {
  return absl::StrCat(address, "#", number);
}

}  // namespace

void Connections::Open(const std::string& address) {
  if (address.empty()) return;
  uint64_t older = 0;
  {
    MutexLock lock(&mu_);
    older = std::exchange(open_[address], ++last_);
  }
  if (older != 0) Tell(address, older);
}

void Connections::Close(const std::string& address, uint64_t number) {
  {
    MutexLock lock(&mu_);
    const auto found = open_.find(address);
    if (found == open_.end() || found->second != number) return;
    open_.erase(found);
  }
  Tell(address, number);
}

uint64_t Connections::NumberOf(const std::string& address) const {
  MutexLock lock(&mu_);
  const auto found = open_.find(address);
  return found == open_.end() ? 0 : found->second;
}

std::string Connections::NameOf(const std::string& address) const {
  return Name(address, NumberOf(address));
}

bool Connections::IsOpen(const std::string& name) const {
  const std::string address = name.substr(0, name.rfind('#'));
  const uint64_t number = NumberOf(address);
  return number != 0 && Name(address, number) == name;
}

void Connections::Tell(const std::string& address, uint64_t number) const {
  for (const Closed& closed : closed_) closed(Name(address, number));
}

}  // namespace phasor
