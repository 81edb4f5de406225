// SPDX-License-Identifier: Apache-2.0
// Describes models to clients: metadata, configuration, index. Threads: pure functions.
#ifndef PHASOR_SERVER_OIP_MODEL_INFO_H_
#define PHASOR_SERVER_OIP_MODEL_INFO_H_

#include "inference/grpc_service.pb.h"
#include "server/oip/model_catalogue.h"

namespace phasor::oip {

inference::ModelMetadataResponse MetadataOf(const Model& model);
// Reports no batching: shapes are complete, and a batch dimension is one of their dimensions.
inference::ModelConfig ConfigOf(const Model& model);
inference::RepositoryIndexResponse IndexOf(const ModelSet& models);

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_MODEL_INFO_H_
