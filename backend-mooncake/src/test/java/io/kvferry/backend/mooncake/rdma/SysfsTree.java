// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.rdma;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;

/// A tree as the kernel shows RDMA devices in, in a folder of a test.
record SysfsTree(Path root) {
    static final String GLOBAL = "0000:0000:0000:0000:0000:ffff:0a00:0001";
    static final String LINK_LOCAL = "fe80:0000:0000:0000:0a00:27ff:fe00:0001";
    static final String ZERO = "0000:0000:0000:0000:0000:0000:0000:0000";
    static final String V1 = "IB/RoCE v1";
    static final String V2 = "RoCE v2";

    /// A device on the bus, linked as in the kernel's tree.
    SysfsTree device(String name, String pci, int numa, String... netdevs) {
        Path bus = pci(pci, numa);
        for (String netdev : netdevs) {
            folder(bus.resolve("net").resolve(netdev));
        }
        Path device = folder(root.resolve("class/infiniband").resolve(name));
        try {
            Files.createSymbolicLink(device.resolve("device"), bus);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return this;
    }

    /// A device without a place on the bus, as a software one.
    SysfsTree software(String name) {
        folder(root.resolve("class/infiniband").resolve(name));
        return this;
    }

    /// Something on the bus, such as a GPU.
    Path pci(String pci, int numa) {
        Path bus = root.resolve("bus/pci/devices").resolve(pci);
        write(bus.resolve("numa_node"), numa + "\n");
        return bus;
    }

    SysfsTree port(String device, int port, String state) {
        write(port(device, port).resolve("state"), state + "\n");
        return this;
    }

    SysfsTree gid(String device, int port, int index, String gid, String type, String netdev) {
        Path folder = port(device, port);
        write(folder.resolve("gids/" + index), gid + "\n");
        write(folder.resolve("gid_attrs/types/" + index), type + "\n");
        write(folder.resolve("gid_attrs/ndevs/" + index), netdev + "\n");
        return this;
    }

    /// An active port that has a global address of RoCE v2 at index 3.
    SysfsTree up(String device) {
        return port(device, 1, "4: ACTIVE")
                .gid(device, 1, 0, LINK_LOCAL, V1, "eth0")
                .gid(device, 1, 1, LINK_LOCAL, V2, "eth0")
                .gid(device, 1, 2, GLOBAL, V1, "eth0")
                .gid(device, 1, 3, GLOBAL, V2, "eth0");
    }

    private Path port(String device, int port) {
        return root.resolve("class/infiniband").resolve(device).resolve("ports/" + port);
    }

    private static Path folder(Path folder) {
        try {
            return Files.createDirectories(folder);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static void write(Path file, String text) {
        folder(file.resolveSibling("."));
        try {
            Files.writeString(file, text);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
