// SPDX-License-Identifier: Apache-2.0
// Tests that every text is a name of one type.
#include "server/security/subject_name.h"

#include <gtest/gtest.h>

namespace phasor::security {
namespace {

TEST(SubjectNameTest, TheTextTellsTheType) {
  for (const char* uri : {"spiffe://example.org/search", "https://a@b.example.org", "urn:uuid:1"}) {
    EXPECT_EQ(TypeOfName(uri), NameType::kUri) << uri;
  }
  for (const char* dns : {"a.example.org", "*.example.org", "localhost", "", ":"}) {
    EXPECT_EQ(TypeOfName(dns), NameType::kDns) << dns;
  }
  EXPECT_EQ(TypeOfName("ci@example.org"), NameType::kEmail);
  for (const char* ip : {"127.0.0.1", "::1", "fe80::1"}) {
    EXPECT_EQ(TypeOfName(ip), NameType::kIp) << ip;
  }
  EXPECT_EQ(TypeOfName(std::string("127.0.0.1\0.example.org", 22)), NameType::kDns);
}

}  // namespace
}  // namespace phasor::security
