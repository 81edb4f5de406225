// SPDX-License-Identifier: Apache-2.0
// The single binary of the image. It is the server if called phasor-server, otherwise the command
// line. gRPC is most of both programs, so sharing it halves the image. The two main functions are
// compiled under the names below.
#include <string_view>

int PhasorServerMain(int argc, char** argv);
int PhasorCliMain(int argc, char** argv);

int main(int argc, char** argv) {
  const std::string_view path = argc > 0 ? argv[0] : "";
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name == "phasor-server" ? PhasorServerMain(argc, argv) : PhasorCliMain(argc, argv);
}
