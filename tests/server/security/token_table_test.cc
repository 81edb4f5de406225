// SPDX-License-Identifier: Apache-2.0
// Tests parsing hashes of tokens and finding tokens.
#include "server/security/token_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <iterator>

#include "kernels/base/sha256.h"
#include "kernels/base/text.h"
#include "tests/support/status_matchers.h"

namespace phasor::security {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::StatusIs;

const std::string& Token(char c) {
  static auto* const tokens = new std::string[256];
  std::string& token = tokens[static_cast<unsigned char>(c)];
  if (token.empty()) token = std::string(kMinTokenBytes, c);
  return token;
}

std::string Line(const std::string& name, const std::string& token) {
  return StrCat(name, " sha256:", Sha256Hex(token), "\n");
}

TEST(TokenTableTest, FindsTheNameOfEveryTokenAndOfNoOther) {
  std::string upper = Sha256Hex(Token('c'));
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const auto table =
      TokenTable::Parse(StrCat("# comment\n\n", Line("one", Token('a')), "  ",
                               Line("one", Token('b')), "two\tsha256:", upper, "  # so\r\n"),
                        "f");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->size(), 3);
  EXPECT_EQ(table->NameOf(Token('a')), "one");
  EXPECT_EQ(table->NameOf(Token('b')), "one");
  EXPECT_EQ(table->NameOf(Token('c')), "two");
  EXPECT_EQ(table->NameOf(Token('d')), std::nullopt);
  EXPECT_EQ(table->NameOf(""), std::nullopt);
  EXPECT_EQ(table->NameOf(Sha256Hex(Token('a'))), std::nullopt);
}

TEST(TokenTableTest, ShortTokensAreNoTokensWhateverTheFileSays) {
  const std::string token(kMinTokenBytes - 1, 'x');
  const auto table = TokenTable::Parse(Line("weak", token), "f");
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->NameOf(token), std::nullopt);
}

TEST(TokenTableTest, RefusesOtherLinesWithoutRepeatingThem) {
  const std::string digest = Sha256Hex(Token('a'));
  for (const std::string& line :
       {Token('s'), StrCat("name ", Token('s')), StrCat("name sha256:", digest.substr(1)),
        StrCat("name sha256:", digest, "0"), StrCat("name sha512:", digest),
        StrCat("na/me sha256:", digest), StrCat("name more sha256:", digest),
        StrCat("sha256:", digest), StrCat("name sha256:", digest.substr(1), "g")}) {
    EXPECT_THAT(TokenTable::Parse(StrCat("\n", line, "\n"), "f"),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("f:2: not a token"), Not(HasSubstr(Token('s'))),
                               Not(HasSubstr(digest.substr(1))))))
        << line;
  }
}

// What a test cannot time it can read: the comparison is OpenSSL's, of whole digests, of all
// entries.
TEST(TokenTableTest, ComparesInConstantTime) {
  std::ifstream file(PHASOR_TOKEN_TABLE_SOURCE);
  const std::string source{std::istreambuf_iterator<char>(file), {}};
  const size_t begin = source.find("TokenTable::NameOf");
  ASSERT_NE(begin, std::string::npos);
  const std::string body = source.substr(begin, source.find("\n}", begin) - begin);
  EXPECT_THAT(body, HasSubstr("CRYPTO_memcmp(entry.sha256.data(), digest.data(), kDigestDigits)"));
  const std::string loop =
      body.substr(body.find("for ("), body.find("\n  }\n") - body.find("for ("));
  EXPECT_THAT(loop, AllOf(Not(HasSubstr("return")), Not(HasSubstr("break"))));
}

}  // namespace
}  // namespace phasor::security
