// SPDX-License-Identifier: Apache-2.0
// A temporary directory of a test.
#ifndef PHASOR_TESTS_SUPPORT_TEMP_DIR_H_
#define PHASOR_TESTS_SUPPORT_TEMP_DIR_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace phasor::testing {

// Owns the directory and what is in it.
class TempDir {
 public:
  TempDir() : path_(::testing::TempDir() + "/phasor_XXXXXX") {
    EXPECT_NE(mkdtemp(path_.data()), nullptr) << path_;
  }
  ~TempDir() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  void Write(const std::string& file, const std::string& bytes) const {
    std::ofstream(path_ + "/" + file, std::ios::binary) << bytes;
  }
  std::string Read(const std::string& file) const {
    std::ifstream in(path_ + "/" + file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Names of all files, hidden ones too.
  std::set<std::string> Files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.insert(entry.path().filename());
    }
    return names;
  }

 private:
  std::string path_;
};

// Makes a file look as if it was last written a day ago.
inline void MakeOld(const std::string& path) {
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(24));
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_TEMP_DIR_H_
