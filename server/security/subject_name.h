// SPDX-License-Identifier: Apache-2.0
// Types of subject alternative names.
#ifndef PHASOR_SERVER_SECURITY_SUBJECT_NAME_H_
#define PHASOR_SERVER_SECURITY_SUBJECT_NAME_H_

#include <cstdint>
#include <string>

namespace phasor::security {

enum class NameType : uint8_t { kUri, kDns, kEmail, kIp };

// The one type that a name of this text can have. A policy names texts only, so a name of a
// certificate counts only if it has this type: the DNS name "spiffe://example.org/search" must not
// have the rights of the URI. Threads: pure function.
NameType TypeOfName(const std::string& text);

}  // namespace phasor::security

#endif  // PHASOR_SERVER_SECURITY_SUBJECT_NAME_H_
