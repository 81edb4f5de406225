// SPDX-License-Identifier: Apache-2.0
// Does not compile if linking Phasor adds folders to a program's include path that Phasor's users must not see.
#if __has_include("client/client.h") || __has_include("kernels/spec/spec.h") || \
    __has_include("proto/convert.h") || __has_include("phasor/v1/call.pb.h")
#error "internal headers of Phasor are on the include path"
#endif
