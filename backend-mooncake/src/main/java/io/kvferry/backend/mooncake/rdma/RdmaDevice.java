// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.rdma;

import java.util.List;
import java.util.Optional;

/// An RDMA device of this host.
///
/// @param name as `mlx5_0`
/// @param pci where it is
/// @param numa node, -1 where it is not known
/// @param netdevs its network interfaces, sorted
/// @param ports in order of their numbers
record RdmaDevice(String name, PciAddress pci, int numa, List<String> netdevs, List<Port> ports) {
    RdmaDevice {
        netdevs = List.copyOf(netdevs);
        ports = List.copyOf(ports);
    }

    /// @param gids by index; empty where the port has none there
    record Port(boolean active, List<Optional<Gid>> gids) {
        Port {
            gids = List.copyOf(gids);
        }

        Optional<Gid> gid(int index) {
            return index < gids.size() ? gids.get(index) : Optional.empty();
        }
    }

    /// A valid entry of a GID table: it has an interface and is not zero.
    record Gid(boolean linkLocal, boolean roceV2) {}

    /// Whether a port is up and has a GID of this index.
    boolean isActiveFor(int gidIndex) {
        return ports.stream().anyMatch(port -> port.active() && port.gid(gidIndex).isPresent());
    }
}
