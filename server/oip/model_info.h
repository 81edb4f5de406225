// SPDX-License-Identifier: Apache-2.0
// What is said about models: metadata, configuration, index. Threads: pure functions.
#ifndef PHASOR_SERVER_OIP_MODEL_INFO_H_
#define PHASOR_SERVER_OIP_MODEL_INFO_H_

#include "inference/grpc_service.pb.h"
#include "server/oip/model_catalogue.h"

namespace phasor::oip {

inference::ModelMetadataResponse MetadataOf(const Model& model);
// Never with batching: shapes are complete, and a batch dimension is one of them.
inference::ModelConfig ConfigOf(const Model& model);
inference::RepositoryIndexResponse IndexOf(const ModelSet& models);

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_MODEL_INFO_H_
