// SPDX-License-Identifier: Apache-2.0
// Does not compile if linking Phasor adds folders to a program's include path that Phasor's users
// must not see.
#if __has_include("client/client.h") || __has_include("kernels/spec/spec.h")
#error "the root of Phasor's repository is on the include path"
#endif
#if __has_include("phasor/v1/call.pb.h")
#error "Phasor's generated messages are on the include path"
#endif
