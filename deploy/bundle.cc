// SPDX-License-Identifier: Apache-2.0
// One binary for the image: the server when called as phasor-server, else the command line. gRPC is
// most of both, so sharing it halves the image. Their mains are compiled under the names below.
#include <string_view>

int PhasorServerMain(int argc, char** argv);
int PhasorCliMain(int argc, char** argv);

int main(int argc, char** argv) {
  const std::string_view path = argc > 0 ? argv[0] : "";
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name == "phasor-server" ? PhasorServerMain(argc, argv) : PhasorCliMain(argc, argv);
}
