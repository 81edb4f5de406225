// SPDX-License-Identifier: Apache-2.0
// Wire specs and value specs, both ways. Threads: pure functions.
//
// Wire enums are open: a number that this version does not know is INVALID_ARGUMENT, never a guess.
#ifndef PHASOR_PROTO_CONVERT_SPEC_H_
#define PHASOR_PROTO_CONVERT_SPEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "kernels/plan/parity_report.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_details.h"
#include "kernels/spec/spec.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "phasor/v1/spec.pb.h"

namespace phasor {

// `path` prefixes messages ("item.spec"). INVALID_ARGUMENT: an enum value that is not known.
// Values are not checked further: ResolveSpec does.
absl::StatusOr<Spec> SpecFromWire(const v1::Spec& wire, const std::string& path);

v1::Spec ToWire(const Spec& spec);

// How results of `plan` from `backend` are labelled.
v1::RunInfo MakeRunInfo(const std::string& fingerprint, const std::string& backend);

// One pair of a ResolveSpecResponse.
PairDetail PairFromWire(const v1::ResolvedPair& wire);

// Every number of `plan`.
v1::ResolveSpecResponse MakeResolveSpecResponse(const Plan& plan, const std::string& backend);

// INVALID_ARGUMENT: a dtype that is not known or not set.
absl::StatusOr<parity::Comparison> ComparisonFromWire(const v1::ParityComparison& wire);
v1::ParityComparison ToWire(const parity::Comparison& comparison);

absl::StatusOr<parity::Report> ReportFromWire(const v1::ParityDifference& wire);
v1::ParityDifference ToWire(const parity::Report& report);

}  // namespace phasor

#endif  // PHASOR_PROTO_CONVERT_SPEC_H_
