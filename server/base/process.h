// SPDX-License-Identifier: Apache-2.0
// What phasor-server sets for its whole process, before other threads start.
#ifndef PHASOR_SERVER_BASE_PROCESS_H_
#define PHASOR_SERVER_BASE_PROCESS_H_

namespace phasor {

// One heap for eight cores, at least one, instead of glibc's eight for each. A heap keeps what was
// freed in it for its own threads: gRPC receives on several, so each would keep as much as the
// largest request. Does nothing if MALLOC_ARENA_MAX or GLIBC_TUNABLES is set. Call it before other
// threads start.
void LimitHeaps(int cores);

// Turns off Abseil's search for lock cycles, which distributions build in: a tenth of what a small
// call takes.
void TrustLockOrder();

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_PROCESS_H_
