// SPDX-License-Identifier: Apache-2.0
// Three servers with one directory of tables: uploads to any of them under load, and SIGKILL of one
// in the middle. Every server must find every table, whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"
#include "tests/support/eventually.h"
#include "tests/support/replica.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor {
namespace {

using testing::Eventually;
using testing::IsOk;
using testing::Replica;

constexpr int kServers = 3, kNames = 4;
constexpr int64_t kRows = 512, kWidth = 256;  // 512 KiB: written and read in several pieces

std::string NameOf(int i) { return "table-" + std::to_string(i % kNames); }

class SharedTablesTest : public ::testing::Test {
 protected:
  SharedTablesTest() {
    for (int i = 0; i < kServers; ++i) {
      servers_.push_back(std::make_unique<Replica>(std::vector<std::string>{
          "--tables-dir=" + directory_.path(), "--tables-rescan-interval=100ms", "--threads=1"}));
      clients_.push_back(*Client::Connect(servers_.back()->address(), {.max_attempts = 1}));
    }
  }

  // A table whose numbers are all equal, so that a mixture of two shows.
  absl::Status Upload(int server, const std::string& name, float value) {
    const std::vector<float> numbers(kRows * kWidth, value);
    return Of(server).CreateTable(name, View(numbers, {kRows, kWidth})).status();
  }
  absl::StatusOr<std::set<float>> Numbers(int server, const std::string& name) {
    const auto rows =
        Of(server).Encode(EncodeCall{.positions = IntegerRange{.count = kRows}, .table = name});
    if (!rows.ok()) return rows.status();
    const auto* numbers = reinterpret_cast<const float*>(rows->bytes.data());
    return std::set<float>(numbers, numbers + kRows * kWidth);
  }
  const Client& Of(int server) const { return clients_[static_cast<size_t>(server)]; }

  // Uploads tables one after another to one server, until `stop`; failures are those of a server
  // that was killed.
  void UploadUntil(const std::atomic<bool>& stop, int server) {
    for (int i = 0; !stop; ++i) {
      const auto value = static_cast<float>(kServers * i + server);
      const std::string name = NameOf(i);
      const absl::Status status = Upload(server, name, value);
      if (!status.ok()) {
        EXPECT_TRUE(absl::IsUnavailable(status)) << status;
        ++failed_;
        continue;
      }
      ++uploaded_;
      std::lock_guard lock(mutex_);
      complete_.insert(name);
    }
  }
  // Reads tables that were uploaded completely, from every server that lives.
  void ReadUntil(const std::atomic<bool>& stop) {
    for (int i = 0; !stop; ++i) {
      const std::string name = NameOf(i);
      {
        std::lock_guard lock(mutex_);
        if (!complete_.contains(name)) continue;
      }
      for (int server = 1; server < kServers; ++server) {
        const auto numbers = Numbers(server, name);
        ASSERT_THAT(numbers, IsOk()) << name << " of server " << server;
        ASSERT_EQ(numbers->size(), 1u) << "a mixture";
        ++read_;
      }
    }
  }

  const testing::TempDir directory_;
  std::vector<std::unique_ptr<Replica>> servers_;
  std::vector<Client> clients_;
  std::atomic<int> uploaded_ = 0, failed_ = 0, read_ = 0;
  std::mutex mutex_;
  std::set<std::string> complete_;
};

TEST_F(SharedTablesTest, WhatOneTakesAllFindAtOnce) {
  for (int i = 0; i < 12; ++i) {
    const std::string name = "new-" + std::to_string(i);
    ASSERT_THAT(Upload(i % kServers, name, static_cast<float>(i)), IsOk());
    for (int server = 0; server < kServers; ++server) {
      const auto numbers = Numbers(server, name);
      ASSERT_THAT(numbers, IsOk()) << "server " << server;
      EXPECT_EQ(*numbers, std::set<float>{static_cast<float>(i)});
    }
  }
}

TEST_F(SharedTablesTest, AReplacedTableIsEverywhereAfterTheInterval) {
  for (const float value : {1.0f, 2.0f}) {
    ASSERT_THAT(Upload(0, "t", value), IsOk());
    for (int server = 0; server < kServers; ++server) {
      EXPECT_TRUE(Eventually([&] {
        const auto numbers = Numbers(server, "t");
        return numbers.ok() && *numbers == std::set<float>{value};
      })) << "server "
          << server;
    }
  }
  ASSERT_THAT(Of(1).DeleteTable("t"), IsOk());
  EXPECT_TRUE(Eventually([&] { return absl::IsNotFound(Numbers(2, "t").status()); }));
}

TEST_F(SharedTablesTest, AKilledServerLeavesWholeTablesForTheOthers) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int server = 0; server < kServers; ++server) {
    threads.emplace_back([&, server] { UploadUntil(stop, server); });
  }
  threads.emplace_back([&] { ReadUntil(stop); });
  for (int round = 0; round < 5; ++round) {
    const int before = uploaded_, reads = read_;
    EXPECT_TRUE(Eventually([&] { return uploaded_ >= before + 6 && read_ >= reads + 6; }));
    servers_[0]->Kill();
    servers_[0]->Start();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(failed_, 0) << "no upload was under way when the server was killed";

  for (const std::string& name : complete_) {
    std::set<float> agreed;
    EXPECT_TRUE(Eventually([&] {
      agreed.clear();
      for (int server = 0; server < kServers; ++server) {
        const auto numbers = Numbers(server, name);
        if (numbers.ok()) agreed.insert(numbers->begin(), numbers->end());
      }
      return agreed.size() == 1;
    })) << name
        << ": the servers do not agree";
  }
  std::printf("MEASURED %d uploads, %d cut off by 5 kills, %d whole tables read\n",
              uploaded_.load(), failed_.load(), read_.load());
}

}  // namespace
}  // namespace phasor
