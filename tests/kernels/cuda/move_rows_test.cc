// SPDX-License-Identifier: Apache-2.0
// The rows of a move, and how the results of a comparison become its reports.
#include "kernels/cuda/move_rows.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace phasor::cuda {
namespace {

// Two groups of 2 and 3 tokens. Planes 0 and 2 are of group 1, plane 1 of group 0.
struct RowsOfTwoGroups {
  RowsOfTwoGroups() {
    groups[0].from_slots = groups[0].to_slots = {4, 5};
    groups[1].from_slots = groups[1].to_slots = {7, 3, 9};
    forms[0] = {.heads = 2, .head_dim = 8, .bytes_from = 16};
    forms[1] = {.heads = 3, .head_dim = 4, .bytes_before = 4, .bytes_from = 8};
    planes[0].tokens = planes[2].tokens = 1;
    planes[2].form = 1;
    job = {.mode = MoveMode::kCompare, .forms = &forms, .groups = &groups, .planes = &planes};
    job.tolerances = tolerances;
    job.reports = reinterpret_cast<std::byte*>(reports);
    job.report_count = 3;
  }

  std::vector<MoveTokens> groups{2};
  std::vector<KeyForm> forms{2};
  std::vector<MovePlane> planes{3};
  const double tolerances[3] = {0.1, 0.1, 0.5};
  KeyReport reports[3];
  MoveJob job;
};

TEST(MoveRowsTest, RowsAreTheTokensOfAllGroups) {
  const RowsOfTwoGroups made;
  EXPECT_EQ(RowsOf(made.job), 5);
  EXPECT_EQ(FindGroup(made.job, 1).group, 0u);
  EXPECT_EQ(FindGroup(made.job, 2).group, 1u);
  EXPECT_EQ(FindGroup(made.job, 4).row, 2);
  EXPECT_EQ(RowsOfGroup(made.job, 0), 2);
  EXPECT_EQ(RowsOfGroup(made.job, 3), 2);
  EXPECT_EQ(TokenBytes(made.job, 0), 1 + 32);
  EXPECT_EQ(TokenBytes(made.job, 2), 1 + 32 + 36);
  EXPECT_EQ(BytesOf(made.job).read, 3 * 32 + 2 * 32 + 3 * 36);
}

TEST(MoveRowsTest, OnlyComparedPlanesHaveResults) {
  RowsOfTwoGroups made;
  EXPECT_EQ(ResultBytes(made.job), 5 * 24) << "heads of group 1";
  EXPECT_EQ(PlanesOf(made.job, 1)[1].result, 2 * 24);
  made.job.report_count = 2;
  EXPECT_EQ(ResultBytes(made.job), 2 * 24);
  EXPECT_EQ(PlanesOf(made.job, 1).size(), 1u);
  made.job.mode = MoveMode::kMove;
  EXPECT_EQ(ResultBytes(made.job), 0);
  EXPECT_EQ(PlanesOf(made.job, 1).size(), 2u);
}

TEST(MoveRowsTest, ResultsOfSlicesAddUpToReports) {
  RowsOfTwoGroups made;
  made.reports[0].bad_rows = 5;
  ClearReports(made.job);
  const auto row = [](double squares, double max_abs) {
    return RowDifference{squares, 4, max_abs};
  };
  // Of tokens 0, then 1 and 2 of group 1: two heads of plane 0, three of plane 2.
  const RowDifference first[] = {row(0, 0), row(1e-4, 1), row(0, 0), row(0, 0), row(0.9, 2)};
  const RowDifference rest[] = {row(0, 0), row(1, 3), row(0, 0), row(4, 7), row(0, 0),
                                row(1, 5), row(0, 0), row(0, 0), row(0, 0), row(9, 1)};
  AddResults(made.job, {2, 1}, reinterpret_cast<const std::byte*>(first));
  AddResults(made.job, {3, 2}, reinterpret_cast<const std::byte*>(rest));
  const auto& [keys, other, more] = made.reports;
  EXPECT_EQ(keys.max_abs, 5);
  EXPECT_EQ(keys.squares, 1e-4 + 1 + 1);
  EXPECT_EQ(keys.reference_squares, 6 * 4);
  EXPECT_EQ(keys.values, 6 * 8);
  EXPECT_EQ(keys.bad_rows, 2);
  EXPECT_EQ(keys.first_bad_token, 1);
  EXPECT_EQ(keys.first_bad_slot, 3);
  EXPECT_EQ(keys.first_bad_head, 1);
  EXPECT_EQ(other.values, 0) << "group 0 has no results yet";
  EXPECT_EQ(other.first_bad_token, -1);
  EXPECT_EQ(more.max_abs, 7);
  EXPECT_EQ(more.values, 9 * 4);
  EXPECT_EQ(more.bad_rows, 2);
  EXPECT_EQ(more.first_bad_token, 1);
  EXPECT_EQ(more.first_bad_slot, 3);
  EXPECT_EQ(more.first_bad_head, 1);
}

TEST(MoveRowsTest, ANaNIsBadAndStays) {
  RowsOfTwoGroups made;
  made.job.report_count = 1;
  ClearReports(made.job);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const RowDifference rows[] = {{1, 4, 1}, {nan, 4, nan}, {1, 4, 9}, {1, 4, 1}};
  AddResults(made.job, {2, 2}, reinterpret_cast<const std::byte*>(rows));
  EXPECT_NE(made.reports[0].max_abs, made.reports[0].max_abs);
  EXPECT_EQ(made.reports[0].bad_rows, 4);
}

}  // namespace
}  // namespace phasor::cuda
