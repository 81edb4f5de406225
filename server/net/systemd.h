// SPDX-License-Identifier: Apache-2.0
// What a service tells systemd, and the sockets that systemd keeps for it while its process is
// replaced (docs/adr/0033). libsystemd has both, but static programs cannot link it.
#ifndef PHASOR_SERVER_NET_SYSTEMD_H_
#define PHASOR_SERVER_NET_SYSTEMD_H_

#include <optional>
#include <string>
#include <vector>

namespace phasor {

// The descriptors that systemd has passed to this process, from the variables LISTEN_PID and
// LISTEN_FDS (sd_listen_fds(3)); none if the variables are for another process.
std::vector<int> PassedDescriptors(const std::optional<std::string>& listen_pid,
                                   const std::optional<std::string>& listen_fds);

// Sends `state`, such as "READY=1", and descriptors to `socket`, the value of NOTIFY_SOCKET
// (sd_pid_notify_with_fds(3)). Returns false if that fails, also if `socket` is empty: then systemd
// does not wait for messages.
bool NotifySystemd(const std::string& socket, const std::string& state,
                   const std::vector<int>& descriptors = {});

// Has systemd keep these descriptors, and none that it has kept before, until the service is
// stopped. After a restart they are among those passed. Returns false as NotifySystemd does.
bool KeepDescriptors(const std::string& socket, const std::vector<int>& descriptors);

// Has systemd close the descriptors that it keeps, and waits until it has, at most 30 s.
void ForgetDescriptors(const std::string& socket);

}  // namespace phasor

#endif  // PHASOR_SERVER_NET_SYSTEMD_H_
