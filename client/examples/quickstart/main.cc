// SPDX-License-Identifier: Apache-2.0
// Encodes four timesteps and rotates a query and a key, against a server or in this process:
//
//   quickstart                        computes here
//   quickstart dns:///phasor:50051    asks a server
#include <phasor/client.h>

#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  auto client = phasor::Client::Connect(argc > 1 ? argv[1] : "inproc:");
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", client.status().ToString().c_str());
    return 1;
  }

  // Rows of an embedding. The result owns them.
  auto rows = client->Encode({.preset = "timestep-sin-cos", .dim = 128}, {10, 12, 16, 100});
  if (!rows.ok()) {
    std::fprintf(stderr, "%s\n", rows.status().ToString().c_str());
    return 1;
  }
  for (int t = 0; t < 4; ++t) {
    std::printf("%9.6f %9.6f %9.6f ...\n", rows->row(t)[0], rows->row(t)[1], rows->row(t)[2]);
  }

  // Three tokens with two query heads and one key head of 4 lanes, rotated in place.
  const std::vector<int64_t> positions = {0, 1, 2};
  std::vector<float> q(3 * 2 * 4, 1.0f);
  std::vector<float> k = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4};
  auto info =
      client->ApplyRoPE({.preset = "rope-half-split"}, positions,
                        {phasor::MutableView(q, {3, 2, 4}), phasor::MutableView(k, {3, 1, 4})});
  if (!info.ok()) {
    std::fprintf(stderr, "%s\n", info.status().ToString().c_str());
    return 1;
  }
  std::printf("key at 2: %.6f %.6f %.6f %.6f\n", k[8], k[9], k[10], k[11]);
  std::printf("spec %s, numerics %u, backend %s\n", info->spec_fingerprint.c_str(),
              info->numerics_version, info->backend.c_str());
  return 0;
}
