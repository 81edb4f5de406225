// SPDX-License-Identifier: Apache-2.0
// Converts specs between the wire and values. Threads: pure functions.
//
// Wire enums are open: a number that this version does not know is INVALID_ARGUMENT.
#ifndef PHASOR_PROTO_CONVERT_SPEC_H_
#define PHASOR_PROTO_CONVERT_SPEC_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/plan/parity_report.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_details.h"
#include "kernels/spec/spec.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "phasor/v1/spec.pb.h"

namespace phasor {

// `path` is the field path in error messages, such as "item.spec". INVALID_ARGUMENT: an unknown
// enum value. ResolveSpec checks all other values.
absl::StatusOr<Spec> SpecFromWire(const v1::Spec& wire, const std::string& path);

v1::Spec ToWire(const Spec& spec);

// The label of a result: the plan's fingerprint, the numerics version and the backend.
void SetRunInfo(std::string_view fingerprint, std::string_view backend, v1::RunInfo* info);

// One pair of a ResolveSpecResponse.
PairDetail PairFromWire(const v1::ResolvedPair& wire);

// All numbers of `plan`.
v1::ResolveSpecResponse MakeResolveSpecResponse(const Plan& plan, const std::string& backend);

// INVALID_ARGUMENT: a dtype that is unknown or not set.
absl::StatusOr<parity::Comparison> ComparisonFromWire(const v1::ParityComparison& wire);
v1::ParityComparison ToWire(const parity::Comparison& comparison);

absl::StatusOr<parity::Report> ReportFromWire(const v1::ParityDifference& wire);
v1::ParityDifference ToWire(const parity::Report& report);

}  // namespace phasor

#endif  // PHASOR_PROTO_CONVERT_SPEC_H_
